"""What makes the models and inputs of the demonstrations that are not shipped as files."""
