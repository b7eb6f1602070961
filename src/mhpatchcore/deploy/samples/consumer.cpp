// Judge images with an exported detector: ./consumer part.onnx image.ppm …
// g++ -std=c++17 -I $ORT/include consumer.cpp -L $ORT/lib -lonnxruntime -o consumer
// Pixels come from a PPM or PGM file here, which needs no library; at the line they come from the camera.
#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

struct Image {
  std::vector<int64_t> shape;  // 1, height, width, channels
  std::vector<uint8_t> pixels;
};

Image read_pixels(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int64_t width = 0, height = 0, most = 0;
  file >> kind >> width >> height >> most;
  if (!file || (kind != "P5" && kind != "P6") || most != 255) {
    throw std::runtime_error(std::string(path) + " is no PPM or PGM file of 8 bits");
  }
  file.get();  // the one space before the pixels
  const int64_t channels = kind == "P6" ? 3 : 1;
  Image image{{1, height, width, channels}, std::vector<uint8_t>(height * width * channels)};
  file.read(reinterpret_cast<char*>(image.pixels.data()), image.pixels.size());
  if (!file) throw std::runtime_error(std::string(path) + " ends too soon");
  return image;
}

int main(int count, char** arguments) try {
  setenv("ORT_DISABLE_TELEMETRY", "1", 1);
  Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "consumer");
  Ort::Session session(environment, arguments[1], Ort::SessionOptions{});
  const Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const char* inputs[] = {"image"};
  const char* outputs[] = {"score", "p_value", "verdict", "map", "mask"};
  for (int i = 2; i < count; ++i) {
    Image image = read_pixels(arguments[i]);
    Ort::Value tensor = Ort::Value::CreateTensor<uint8_t>(memory, image.pixels.data(), image.pixels.size(),
                                                          image.shape.data(), image.shape.size());
    std::vector<Ort::Value> found = session.Run(Ort::RunOptions{}, inputs, &tensor, 1, outputs, 5);
    std::cout << std::setprecision(9) << arguments[i] << '\t' << found[0].GetTensorData<float>()[0] << '\t'
              << found[1].GetTensorData<float>()[0] << '\t' << found[2].GetTensorData<int32_t>()[0] << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 2;
}
