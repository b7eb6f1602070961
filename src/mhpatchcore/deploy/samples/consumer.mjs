// Judge images with an exported detector: node consumer.mjs part.onnx image.ppm …  (npm install onnxruntime-node)
// Pixels come from a PPM or PGM file here, which needs no library; at the line they come from the camera.
import { readFileSync } from "node:fs";

process.env.ORT_DISABLE_TELEMETRY = "1"; // before the library loads
const { default: ort } = await import("onnxruntime-node");

function readPixels(path) {
  const file = readFileSync(path);
  const header = /^P([56])\s+(\d+)\s+(\d+)\s+255\s/.exec(file.toString("latin1", 0, 64));
  if (!header) throw new Error(`${path} is no PPM or PGM file of 8 bits`);
  const shape = [1, Number(header[3]), Number(header[2]), header[1] === "6" ? 3 : 1];
  return new ort.Tensor("uint8", new Uint8Array(file.subarray(header[0].length)), shape);
}

const [model, ...paths] = process.argv.slice(2);
const session = await ort.InferenceSession.create(model);
for (const path of paths) {
  const { score, p_value, verdict } = await session.run({ image: readPixels(path) });
  console.log([path, score.data[0], p_value.data[0], verdict.data[0]].join("\t"));
}
