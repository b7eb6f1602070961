collect_ignore = ["make_golden.py"]  # needs PyTorch, and is run by hand
