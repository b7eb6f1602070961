// Judge images with an exported detector: dotnet run -- part.onnx image.ppm …
// dotnet add package Microsoft.ML.OnnxRuntime
// Pixels come from a PPM or PGM file here, which needs no library; at the line they come from the camera.
using System.Globalization;
using System.Text;
using System.Text.RegularExpressions;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

Environment.SetEnvironmentVariable("ORT_DISABLE_TELEMETRY", "1");
CultureInfo.CurrentCulture = CultureInfo.InvariantCulture;
using var session = new InferenceSession(args[0]);
foreach (var path in args[1..])
{
    using var found = session.Run([NamedOnnxValue.CreateFromTensor("image", ReadPixels(path))]);
    var outputs = found.ToDictionary(one => one.Name);
    var score = outputs["score"].AsTensor<float>().GetValue(0);
    var pValue = outputs["p_value"].AsTensor<float>().GetValue(0);
    var verdict = outputs["verdict"].AsTensor<int>().GetValue(0);
    Console.WriteLine($"{path}\t{score:G9}\t{pValue:G9}\t{verdict}");
}

static DenseTensor<byte> ReadPixels(string path)
{
    var file = File.ReadAllBytes(path);
    var start = Encoding.Latin1.GetString(file, 0, Math.Min(64, file.Length));
    var header = Regex.Match(start, @"^P([56])\s+(\d+)\s+(\d+)\s+255\s");
    if (!header.Success) throw new InvalidDataException($"{path} is no PPM or PGM file of 8 bits");
    int Number(int group) => int.Parse(header.Groups[group].Value);
    int[] shape = [1, Number(3), Number(2), Number(1) == 6 ? 3 : 1];
    return new DenseTensor<byte>(file.AsMemory(header.Length), shape);
}
