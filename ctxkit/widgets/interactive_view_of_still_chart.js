// A chart that Python made, drawn by plotly in the place of its still picture. All its data came with the model, so it
// needs no kernel once it is drawn. The view is ready when plotly is there; until then the still picture stands.
async function renderChart({ model, el, signal }) {
  const plotly = await new Promise(done => {
    const stop = whenPlotly(model, found => { if (found) done(found); });
    signal?.addEventListener("abort", stop);
  });
  const { data, layout } = structuredClone(model.get("figure"));     // plotly writes into both
  const plot = el.appendChild(document.createElement("div"));
  plot.setAttribute("role", "group"); plot.setAttribute("aria-label", model.get("title"));
  plot.style.cssText = `width:100%;height:${layout.height || 380}px`;
  let drawn = false;
  const observer = new ResizeObserver(() => {
    if (!plot.clientWidth) return;                                   // not in the page yet
    if (drawn) { plotly.Plots.resize(plot); return; }
    drawn = true;
    plotly.newPlot(plot, data, { ...layout, autosize: true },
      { displaylogo: false, toImageButtonOptions: { filename: model.get("title") || "chart" } });
  });
  observer.observe(plot);
  return () => { observer.disconnect(); plotly.purge(plot); };
}
export default { render: renderChart };
