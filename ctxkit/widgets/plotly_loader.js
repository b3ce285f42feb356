// plotly.js, loaded once a page: from the kernel, or from the page itself. Nothing of it is saved in a notebook.
const hub = globalThis.ctxkitPlotly ||= { waiting: [], asked: 0 };
async function unpacked(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const url = URL.createObjectURL(new Blob([await new Response(stream).text()], { type: "text/javascript" }));
  await new Promise((done, failed) => {
    const tag = document.createElement("script"), amd = globalThis.define;
    const end = f => () => { if (amd) globalThis.define = amd; URL.revokeObjectURL(url); f(); };
    globalThis.define = undefined;                                 // else it registers with AMD and sets no global
    tag.onload = end(done); tag.onerror = end(failed); tag.src = url;
    document.head.append(tag);
  });
}
function heard(message, buffers) {
  if (message?.kind !== "plotly" || !buffers?.length || hub.loading || globalThis.Plotly) return;
  hub.loading = unpacked(buffers[0]).catch(() => { hub.refused = true; }).then(() => {
    for (const go of hub.waiting.splice(0)) go(globalThis.Plotly);
  });
}
function whenPlotly(model, go) {
  if (globalThis.Plotly?.react) { go(globalThis.Plotly); return () => {}; }
  hub.waiting.push(go);
  model.on("msg:custom", heard);
  let tries = 0, timer = 0;
  const ask = () => {
    if (globalThis.Plotly || hub.refused || tries > 5) return;
    // A question waits in a busy kernel: each further one would be answered with the whole library too.
    if (!hub.asked || model.widget_manager?.kernel?.status !== "busy") {
      tries++;
      if (!hub.loading && Date.now() - hub.asked > 4000) { hub.asked = Date.now(); model.send({ kind: "plotly" }); }
    }
    timer = setTimeout(ask, 5000);                                 // a busy kernel answers late, a dead one never
  };
  ask();
  return () => { clearTimeout(timer); model.off("msg:custom", heard); hub.waiting = hub.waiting.filter(f => f !== go); };
}
