"""Models: scripted, local, or any provider through LiteLLM."""
