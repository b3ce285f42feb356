"""Charts turned by hand: plotly draws, the browser answers, Python holds the same rules."""
