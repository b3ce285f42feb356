// The same code over a model without a kernel: state and answers lie in the page.
const held = JSON.parse(here.querySelector("script[type='application/json']").textContent), listeners = {};
const state = held.state, tell = (event, ...args) => (listeners[event] || []).forEach(f => f(...args));
const model = {
  get: k => state[k], set: (k, v) => { if (state[k] !== v) { state[k] = v; tell("change:" + k); } }, save_changes() {},
  on: (k, f) => { (listeners[k] ||= []).push(f); }, off: (k, f) => { listeners[k] = (listeners[k] || []).filter(g => g !== f); },
  send: asked => {
    if (asked.kind === "plotly") {
      const packed = document.querySelector("script[data-ctxkit-plotly]");
      if (packed) setTimeout(() => tell("msg:custom", { kind: "plotly" }, [Uint8Array.from(atob(packed.textContent), c => c.charCodeAt(0))]));
      return;
    }
    const answer = held.answers[`${asked.kind}/${asked.session ?? ""}/${asked.at}`] || { kind: asked.kind, error: "This page does not hold it; the notebook does.", key: asked.key };
    setTimeout(() => { if (answer.usd) model.set("usd", { ...state.usd, ...answer.usd }); tell("msg:custom", { ...answer, key: asked.key }); });
  },
};
widget.render({ model, el: here.querySelector("[data-live]") });
