"""Agents as files that run without this package: ONNX, or weights for a few lines of NumPy."""
