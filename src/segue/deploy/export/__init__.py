"""A model for other programs: ONNX, TorchScript and torch.export, compared with the model."""
