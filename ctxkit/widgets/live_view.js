// Put live views in the place of still pictures. The output of a cell stores HTML alone: a slot that holds the picture
// and names a model. This model is never displayed itself: a front end makes it when the kernel opens its comm, and its
// `initialize` runs without a view. From then on each slot whose model exists gets a view beside the picture, which is
// hidden meanwhile. Without a kernel nothing of this runs, so the picture stays.
const SLOT = "ctxkit-slot", MODEL = /\bctxkit-model-(\w+)/, LOOK_EVERY_MS = 1000;
const KERNEL_GONE = "The kernel that drew this is gone, so its controls are disabled. Run the cell again.";

function initialize({ model }) {
  const manager = model.widget_manager, filled = new Map();          // slot -> its view; null while that is made
  let stopped = false, frame = 0;
  const isDead = child => {
    const kernel = manager.kernel;                                   // null after a shutdown; some managers have no such field
    return child.comm_live === false || kernel === null || !!kernel && (kernel.isDisposed || kernel.status === "dead");
  };

  async function fill(slot) {
    const id = MODEL.exec(slot.className)?.[1];
    // The mark stands in the page: after a restart the manager of the old kernel looks too.
    if (stopped || !id || slot.dataset.ctxkitFilled || !(manager.has_model?.(id) ?? true)) return;
    slot.dataset.ctxkitFilled = "1";
    filled.set(slot, null);
    try {
      const child = await manager.get_model(id);
      // Models outlive their kernel, and a closed notebook: a notebook opened again must not get such a view.
      if (isDead(child)) throw new Error(KERNEL_GONE);
      const view = await manager.create_view(child);
      if (!slot.isConnected) { view.remove(); throw new Error("the cell ran again"); }
      filled.set(slot, mount(slot, child, view));
    } catch { filled.delete(slot); delete slot.dataset.ctxkitFilled; }  // the picture stays
  }

  function mount(slot, child, view) {
    // Beside the notebook's box for HTML, not in it: its rules for tables would reach into the view.
    const cage = slot.closest(".jp-RenderedHTMLCommon, .rendered_html"), lone = cage && slot.parentElement === cage;
    const still = lone ? cage : slot.firstElementChild, live = document.createElement("div");
    live.className = lone ? "ctxkit-live-view jp-OutputArea-output" : "ctxkit-live-view";
    live.style.cssText = "flex:1 1 auto;min-width:0";
    const note = live.appendChild(document.createElement("div")), place = live.appendChild(document.createElement("div"));
    note.setAttribute("role", "status"); note.hidden = true;
    note.style.cssText = "border-left:3px solid #d55e00;padding:2px 8px;margin:4px 0;color:var(--jp-content-font-color1,inherit);font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif)";
    still.after(live);
    const widget = view.luminoWidget ?? view.pWidget;
    if (widget?.constructor?.attach) widget.constructor.attach(widget, place); else place.append(view.el);
    still.style.display = "none";
    const gone = () => empty(slot), check = () => {
      const dead = isDead(child) && child.get("needs_kernel") !== false;
      if (note.hidden === !dead) return;
      note.hidden = !dead; note.textContent = dead ? KERNEL_GONE : "";
      place.inert = dead; place.style.opacity = dead ? .75 : ""; place.classList.toggle("ctxkit-disabled", dead);
    };
    child.on("comm_live_update", check); child.on("destroy", gone); check();
    return { check, end() {
      child.off("comm_live_update", check); child.off("destroy", gone);
      if (widget && !widget.node.isConnected) document.body.append(widget.node);  // Lumino detaches only what is attached
      view.remove(); live.remove(); still.style.display = "";
    } };
  }

  function empty(slot) {
    const mounted = filled.get(slot);
    if (!mounted) return;                                            // made just now: `fill` looks whether it is still there
    filled.delete(slot); delete slot.dataset.ctxkitFilled;
    mounted.end();
  }
  function look() {
    frame = 0;
    for (const [slot, mounted] of [...filled]) if (slot.isConnected) mounted?.check(); else empty(slot);
    for (const slot of document.getElementsByClassName(SLOT)) fill(slot);
  }
  model.on("comm_live_update", () => { stopped = true; });           // the kernel is gone: the next one has a mounter of its own

  const observer = new MutationObserver(() => { frame ||= requestAnimationFrame(look); });
  observer.observe(document.body, { childList: true, subtree: true });
  const timer = setInterval(look, LOOK_EVERY_MS);                    // models come back after a reload; a kernel ends without a word
  look();
  colourPlotlyText();
  return () => {
    stopped = true; observer.disconnect(); clearInterval(timer); cancelAnimationFrame(frame);
    for (const slot of [...filled.keys()]) empty(slot);
  };
}
/** Give plotly's words the lab's own colour: a figure has one grey for light and dark pages, and no grey has a
 *  contrast above 4.4 on both. Words on marks and hover texts keep theirs. */
function colourPlotlyText() {
  if (document.getElementById("ctxkit-plotly-text")) return;
  const style = document.head.appendChild(document.createElement("style"));
  style.id = "ctxkit-plotly-text";
  style.textContent = `.js-plotly-plot :is(g[class$="tick"] text, text[class$="title"], .legendtext, .annotation-text, .textpoint text)`
    + `{fill:var(--jp-content-font-color1,var(--vscode-foreground,#777))!important}`;
}
export default { initialize };
