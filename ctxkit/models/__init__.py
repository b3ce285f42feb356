"""A model as a callable: scripted, any through LiteLLM, a local file; and who overflows how."""
