# Judge images with an exported detector: python consumer.py part.onnx image.png …  (onnxruntime, numpy, pillow)
import os
import sys

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the library loads
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

if __name__ == "__main__":
    session = onnxruntime.InferenceSession(sys.argv[1])
    for path in sys.argv[2:]:
        pixels = np.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
        score, p_value, verdict, _heat, _mask = session.run(None, {"image": pixels[None]})
        print(f"{path}\t{score[0]:.9g}\t{p_value[0]:.9g}\t{verdict[0]}")
