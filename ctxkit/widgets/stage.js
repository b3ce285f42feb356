// What the widgets turned by hand share: plotly draws (plotly_loader.js); over it lie handles that answer to
// pointer and keys. Where plotly cannot be had, the same picture is drawn plainly.
const NS = "http://www.w3.org/2000/svg";
// INK, DASH, STROKE, WARN, STOP, GREY, GRID, FIGURE_CELL, LONG_CELL and PIECE are handed over by Python.
const FIGURE = new RegExp(`^(?:${FIGURE_CELL})$`);
const L = 64, R = 16, T = 20, B = 44, GRAB_PIXELS = 12, MAX_POINTS = 3000, MAX_MARK_LABELS = 12;
const WHOLE = new Intl.NumberFormat("en-US"), num = n => WHOLE.format(Math.round(n));  // toLocaleString costs 30 µs each
const per = n => (100 * n).toFixed(Math.abs(n) < 0.0995 ? 1 : 0) + " %";
const many = (n, word) => `${num(n)} ${word}${n === 1 ? "" : "s"}`;
const usd = n => "$" + n.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: Math.abs(n) < 0.1 ? 4 : 2 });
const short = n => n >= 1e6 ? +(n / 1e6).toFixed(2) + "M" : n >= 1e3 ? +(n / 1e3).toFixed(1) + "k" : String(+n.toFixed(3));
const safe = s => String(s).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
function nice(n) { const p = 10 ** Math.floor(Math.log10(n)), k = n / p; return p * (k <= 1 ? 1 : k <= 2 ? 2 : k <= 5 ? 5 : 10); }

function set(e, attrs) {                                           // what stays is not written: a drag must not lay out anew
  for (const k in attrs) { const v = String(attrs[k]); if (e.getAttribute(k) !== v) e.setAttribute(k, v); }
  return e;
}
const say = (e, text) => { if (e.textContent !== text) e.textContent = text; };
function node(tag, attrs, parent, text) {
  const e = set(document.createElementNS(NS, tag), attrs);
  if (text !== undefined) e.textContent = text;                    // never innerHTML: names are untrusted
  if (parent) parent.append(e);
  return e;
}
function make(tag, cls, parent, text) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}

/** Fill a table: heads, rows of texts; figures stand to the right. `look(i)`: that of a row's line. A table of the same
 *  shape keeps its cells, for a drag fills it anew at each move. */
function tabled(table, caption, head, rows, look) {
  const shape = `${head}/${rows.length}`;
  if (table.shape !== shape) {
    table.replaceChildren(); table.shape = shape;
    make("caption", "", table, "");
    const top = make("tr", "", make("thead", "", table));
    for (const h of head) make("th", "", top, h).scope = "col";
    const body = make("tbody", "", table);
    table.cells = rows.map(row => {
      const line = make("tr", "", body);
      return row.map((_, k) => {
        const cell = make("td", "", line), s = !k && look && node("svg", { width: 30, height: 8, "aria-hidden": "true" }, cell);
        return { cell, swatch: s && node("line", { x1: 0, x2: 24, y1: 4, y2: 4, "stroke-width": 2 }, s), text: cell.appendChild(document.createTextNode("")) };
      });
    });
  }
  if (table.caption.textContent !== caption) table.caption.textContent = caption;
  table.caption.hidden = !caption;
  rows.forEach((row, i) => row.forEach((text, k) => {
    const { cell, swatch, text: held } = table.cells[i][k];
    if (held.data !== text) { held.data = text; cell.className = FIGURE.test(text) ? "n" : text.length <= LONG_CELL ? "s" : ""; }
    if (swatch) set(swatch, { stroke: look(i).ink, "stroke-dasharray": STROKE[look(i).dash] });
  }));
}

/** Places of at most about `room` of the points: lowest and highest of each part, and where the sum begins anew. */
function thinned(ys, room) {
  const n = ys.length;
  if (n <= room) return Array.from({ length: n }, (_, i) => i);
  const out = new Set([0, n - 1]), step = 2 * n / room;
  for (let a = 0; a < n; a += step) {
    let lo = Math.floor(a), hi = lo;
    for (let i = lo; i < Math.min(n, a + step); i++) { if (ys[i] < ys[lo]) lo = i; if (ys[i] > ys[hi]) hi = i; }
    out.add(lo); out.add(hi);
  }
  return [...out].sort((a, b) => a - b);
}

/** The frame of a widget: `bar` for fields, `said` for the verdict, the picture with its layer, `below` for more.
 *  `view.spec()` gives what does not change under the hand, `view.draw(stage)` draws the rest over it. */
function stage(model, el, label, view) {
  const root = make("div", "ctxkit-hand");
  root.setAttribute("data-lm-suppress-shortcuts", "true");         // else the lab takes the arrow keys
  const bar = make("div", "bar", root), said = make("div", "said", root), box = make("div", "box", root);
  const note = make("div", "soft", root), below = make("div", "below", root);
  said.setAttribute("role", "status");
  const H = view.high || 340, plot = make("div", "plot", box);
  const plain = node("svg", { class: "plain", role: "img", "aria-label": label }, box);
  const over = node("svg", { class: "over", role: "group", "aria-label": label }, box);
  const name = "clip" + Math.random().toString(36).slice(2), clip = node("rect", {}, node("clipPath", { id: name }, over));
  const moving = node("g", { "clip-path": `url(#${name})` }, over), marks = node("g", { "clip-path": `url(#${name})` }, over);
  box.style.height = H + "px";
  el.replaceChildren(root);
  let W = 0, P = null, spec = null, xs = [0, 1], ys = [0, 1], due = 0, timer = 0, rest = 0, held = null, gone = false, told = false;

  const me = {
    root, bar, said, below, note, marks, over, handles: {}, H,
    X: x => L + (x - xs[0]) / (xs[1] - xs[0] || 1) * (W - L - R),
    Y: y => T + (1 - (y - ys[0]) / (ys[1] - ys[0] || 1)) * (H - T - B),
    back: py => ys[0] + (1 - (py - T) / (H - T - B)) * (ys[1] - ys[0]),
    get step() { return Math.abs(me.X(1) - me.X(0)); },
    beside: (lo, hi) => [lo - 0.01 * (hi - lo), hi + (hi - lo) * 150 / Math.max(150, W - L - R - 150)],  // room for the words on the lines
    left: L, right: () => W - R, upper: T, lower: H - B,
    put(key, value) { if (model.get(key) !== value) model.set(key, value); me.save(); me.soon(); },
    save() { clearTimeout(timer); timer = setTimeout(() => model.save_changes(), 60); },
    soon() { if (!due && !gone) due = requestAnimationFrame(() => { due = 0; if (W) { const lines = view.lines?.(); if (lines) relined(lines); view.draw(me); } }); },
    anew() {
      if (!W || gone) return;
      const empty = Boolean(view.empty?.());                         // without anything to draw there is a sentence, and no axes
      root.classList.toggle("empty", empty);
      spec = view.spec();
      if (!empty) base();
      view.draw(me);
    },
  };

  function base() {
    clearTimeout(rest); root.classList.remove("moving"); moving.replaceChildren();
    xs = [...spec.x.range]; ys = [...spec.y.range];
    if (P && drawn()) return;
    plainly();
  }
  function relined(lines) {                                        // plotly takes 80 ms for this: it gets them when the hand rests
    spec.lines = lines;
    if (!P || !told) { plainly(); return; }
    clearTimeout(rest);
    root.classList.add("moving"); moving.replaceChildren();
    for (const l of lines) path(l, moving);
    rest = setTimeout(() => {
      if (gone) return;
      P.restyle(plot, { x: lines.map(l => l.x), y: lines.map(l => l.y), customdata: lines.map(l => l.hover) }, lines.map((_, i) => i));
      root.classList.remove("moving"); moving.replaceChildren();
    }, 250);
  }
  function path(l, into) {
    let d = "", pen = "M";
    l.x.forEach((x, i) => { if (l.y[i] == null) { pen = "M"; return; } d += pen + me.X(x).toFixed(1) + " " + me.Y(l.y[i]).toFixed(1); pen = "L"; });
    node("path", { d, fill: "none", stroke: l.ink, "stroke-width": 1.8, "stroke-dasharray": STROKE[l.dash] || "" }, into);
  }
  const inked = () => getComputedStyle(root).color;
  const labelled = () => spec.mark_label && (spec.marks || []).length <= MAX_MARK_LABELS ? spec.marks || [] : [];
  function figure() {
    const grid = GRID, ink = inked();
    const axis = { gridcolor: grid, zeroline: false, linecolor: grid, tickcolor: grid, automargin: false, tickfont: { size: 11 } };
    const data = spec.lines.map(l => ({ type: "scatter", mode: (l.marked ?? l.x.length < 40) ? "lines+markers" : "lines", x: l.x, y: l.y, name: safe(l.name),
      line: { color: l.ink, width: 1.8, dash: l.dash }, marker: { size: 4, color: l.ink }, connectgaps: false,
      customdata: l.hover, hovertemplate: l.hover ? "%{customdata}<extra></extra>" : "%{y:,}<extra></extra>" }));
    for (const b of spec.bars || []) data.push({ type: "bar", x: b.x, y: b.y, name: safe(b.name), customdata: b.hover, hovertemplate: "%{customdata}<extra></extra>",
      marker: { color: b.ink, pattern: { shape: b.pattern || "", size: 7, solidity: 0.25 }, line: { width: 0 } } });
    const shapes = (spec.marks || []).map(x => ({ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, layer: "below",
      line: { color: GREY, width: 1, dash: spec.mark_label ? "dash" : "dot" } }));
    const annotations = labelled().map(x => ({ x, y: 1, xref: "x", yref: "paper", xanchor: "left", yanchor: "top", showarrow: false,
      text: safe(spec.mark_label), font: { size: 10, color: GREY } }));
    return { data, layout: { width: W, height: H, margin: { l: L, r: R, t: T, b: B, autoexpand: false }, showlegend: false, barmode: "stack",
      bargap: 0.15, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 }, hovermode: "closest",
      hoverlabel: { align: "left", namelength: -1 }, dragmode: "zoom", shapes, annotations, uirevision: "same",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: GREY, activecolor: ink },
      xaxis: { ...axis, showgrid: false, range: [...spec.x.range], title: { text: spec.x.title, standoff: 4 }, tickformat: ",d",
        ...(spec.x.range[1] - spec.x.range[0] < 12 ? { dtick: 1 } : {}) },
      yaxis: { ...axis, range: [...spec.y.range], title: { text: spec.y.title, standoff: 4 }, tickformat: spec.y.share ? ".0%" : "~s" } } };
  }
  function drawn() {
    try {
      const { data, layout } = figure();
      P.react(plot, data, layout, { displaylogo: false, responsive: false, doubleClick: "reset",
        modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] });
    } catch { P = null; return false; }
    if (!told) { told = true; for (const e of ["plotly_relayout", "plotly_relayouting"]) plot.on(e, scaled); }
    plain.replaceChildren();
    scaled();
    return true;
  }
  function scaled() {                                              // zoomed, or drawn anew: the layer follows
    const { xaxis, yaxis } = plot.layout;
    if (xaxis?.range) xs = xaxis.range.map(Number);
    if (yaxis?.range) ys = yaxis.range.map(Number);
    me.soon();
  }
  function plainly() {
    plain.replaceChildren(); set(plain, { width: W, height: H });
    for (let step = nice((ys[1] - ys[0]) / 5), y = Math.ceil(ys[0] / step) * step; y <= ys[1] + 1e-9; y += step) {
      node("line", { x1: L, x2: W - R, y1: me.Y(y), y2: me.Y(y), class: "grid" }, plain);
      node("text", { x: L - 6, y: me.Y(y) + 4, "text-anchor": "end" }, plain, spec.y.share ? per(y) : short(y));
    }
    const every = Math.max(1, nice((xs[1] - xs[0]) / Math.max(2, Math.min(8, W / 100))));
    for (let x = Math.ceil(xs[0] / every) * every; x <= xs[1]; x += every)
      node("text", { x: me.X(x), y: H - 24, "text-anchor": me.X(x) > W - 30 ? "end" : "middle" }, plain, num(x || 0));
    node("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, plain, spec.x.title);
    node("text", { x: 14, y: (T + H - B) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(T + H - B) / 2})` }, plain, spec.y.title);
    for (const x of spec.marks || []) node("line", { x1: me.X(x), x2: me.X(x), y1: T, y2: H - B, class: "cut", ...(spec.mark_label ? { "stroke-dasharray": "5 4" } : {}) }, plain);
    for (const x of labelled()) node("text", { x: me.X(x) + 3, y: T + 10, class: "lab" }, plain, spec.mark_label);
    const stack = new Map();
    for (const b of spec.bars || []) b.x.forEach((x, i) => {
      const from = stack.get(x) || 0, to = from + (b.y[i] || 0), half = Math.max(1, (me.X(1) - me.X(0)) * 0.42);
      stack.set(x, to);
      node("rect", { x: me.X(x) - half, width: 2 * half, y: me.Y(to), height: Math.max(0, me.Y(from) - me.Y(to)), fill: b.ink,
        "fill-opacity": b.pattern ? 0.55 : 1, stroke: b.ink }, plain);
    });
    for (const l of spec.lines) path(l, plain);
  }

  // -- handles: lines across the picture that are dragged, or moved with the keys -----------------------------------
  me.handle = (key, o) => {                                        // o: word, ink, dash, text(v), low, high(), step(), round(v)
    const g = node("g", { class: "handle", tabindex: 0, role: "slider", "aria-label": o.word, "aria-orientation": "vertical", "aria-valuemin": o.low }, over);
    const grip = node("rect", { height: 18, y: -9, fill: "transparent" }, g), line = node("line", { y1: 0, y2: 0, stroke: o.ink, "stroke-width": 2, "stroke-dasharray": o.dash || "" }, g);
    const text = node("text", { class: "lab" }, g);
    g.addEventListener("keydown", e => {
      const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10, PageDown: -10 }[e.key];
      if (!by && e.key !== "Home") return;
      e.preventDefault(); e.stopPropagation();
      o.set(by ? model.get(key) + by * o.step() : o.low, true);
    });
    me.handles[key] = { g, o, key, span: [0, 0], place(value, above) {
      const y = me.Y(value), seen = y >= T - 1 && y <= H - B + 1;
      // Lines that are off all lie at the bottom, so each has a part of the width.
      const [from, to] = value <= o.low && o.off || [0, 1], left = L + from * (W - L - R), right = L + to * (W - L - R);
      this.span = [left, right];
      g.style.display = seen ? "" : "none";
      set(g, { transform: `translate(0 ${y.toFixed(1)})`, "aria-valuenow": value, "aria-valuemax": o.high(), "aria-valuetext": o.text(value) });
      set(grip, { x: left, width: Math.max(0, right - left) }); set(line, { x1: left, x2: right });
      set(text, { x: right - 4, "text-anchor": "end", y: above && y > T + 12 || y > H - B - 14 ? -6 : 15 });
      say(text, o.text(value));
    } };
  };
  const at = e => e.clientY - over.getBoundingClientRect().top;
  const isAbove = (h, e) => { const x = e.clientX - over.getBoundingClientRect().left; return x >= h.span[0] && x <= h.span[1]; };
  over.addEventListener("pointerdown", e => {                      // the nearest line, not the one painted last
    const near = Object.values(me.handles).filter(h => isAbove(h, e)).map(h => [Math.abs(me.Y(model.get(h.key)) - at(e)), h]).sort((a, b) => a[0] - b[0])[0];
    if (!near || near[0] > GRAB_PIXELS || e.button) return;
    e.preventDefault(); e.stopPropagation();
    held = near[1]; held.g.focus(); held.g.setPointerCapture(e.pointerId);
  });
  over.addEventListener("pointermove", e => { if (held) held.o.set(me.back(at(e)), false); });
  const up = () => { if (held) { const h = held; held = null; h.o.set(model.get(h.key), true); } };
  over.addEventListener("pointerup", up); over.addEventListener("lostpointercapture", up);

  // -- a click into the picture: told by its place, so that it works however it was drawn ---------------------------
  box.addEventListener("pointerdown", e => {
    if (!view.clicked || e.button) return;
    const on = e.target, x = e.clientX, y = e.clientY;
    const up = end => {                                            // plotly lays a cover over the page meanwhile: it is not in the box
      if (end.type === "pointercancel" || held || Math.hypot(end.clientX - x, end.clientY - y) > 4) return;
      const r = box.getBoundingClientRect(), px = end.clientX - r.left, py = end.clientY - r.top;
      if (px >= L && px <= W - R && py >= T && py <= H - B && !on.closest?.(".handle,.modebar")) view.clicked(px, py, me);
    };
    addEventListener("pointerup", up, { capture: true, once: true });
  }, true);

  me.field = (key, label, o) => {
    const l = make("label", "", bar, label + " "), f = make("input", "", l);
    f.type = "number"; f.min = o.low; f.step = o.by || "any"; f.name = key;
    if (o.most !== undefined) f.max = o.most;
    const read = end => () => {
      const v = f.valueAsNumber, fits = Number.isFinite(v) && v >= o.low;
      f.setCustomValidity(fits ? "" : `A number from ${o.low} on.`);
      if (end) f.reportValidity();
      if (fits) o.set(v * (o.unit || 1), end);
    };
    f.addEventListener("input", read(false)); f.addEventListener("change", read(true));
    if (o.after) l.append(" " + o.after);
    return v => { if (document.activeElement !== f) f.value = +(v / (o.unit || 1)).toFixed(2); };
  };
  me.toggle = (key, label) => {
    const l = make("label", "", bar), f = make("input", "", l);
    f.type = "checkbox"; f.name = key; l.append(" " + label);
    f.addEventListener("change", () => { me.put(key, f.checked); });
    return v => { f.checked = v; };
  };
  me.choice = (key, label, options) => {                           // [[value, words], ...]
    const l = make("label", "", bar, label + " "), f = make("select", "", l);
    f.name = key;
    options.forEach(([value, words], i) => { const o = make("option", "", f, words); o.value = i; });
    f.addEventListener("change", () => { me.put(key, options[+f.value][0]); view.chosen?.(me); });
    return v => { f.value = options.findIndex(o => o[0] === v); };
  };

  const watch = new ResizeObserver(() => {                         // width is 0 in a hidden tab: wait for it
    const w = Math.floor(root.clientWidth);
    if (w <= 0 || w === W) return;
    W = w; set(over, { width: W, height: H }); set(clip, { x: L - 6, y: T - 6, width: Math.max(0, W - L - R + 12), height: H - T - B + 12 });
    me.anew();
  });
  watch.observe(root);
  const themed = new MutationObserver(() => { if (P && told && W) P.relayout(plot, { "font.color": inked() }); });
  themed.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-jp-theme-name"] });
  const left = whenPlotly(model, found => { if (found && !gone) { P = found; me.anew(); } });
  const heardOf = [];
  me.on = (event, f) => { heardOf.push([event, f]); model.on(event, f); };
  me.on("change:data", () => me.anew());
  me.end = () => {
    gone = true; watch.disconnect(); themed.disconnect(); left(); clearTimeout(timer); clearTimeout(rest); cancelAnimationFrame(due);
    for (const [event, f] of heardOf) model.off(event, f);
    if (P && told) P.purge(plot);
  };
  return me;
}
