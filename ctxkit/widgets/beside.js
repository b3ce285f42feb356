/** Two sessions side by side: their prompts as two lines, their entries row by row, the two texts of one row. */
function render({ model, el }) {
  let data = null, of = "";
  const view = {
    high: 190,
    spec() {
      data = model.get("data");
      let peak = 1, last = 1;
      for (const [x, y] of data.lines) { for (const n of y) if (n > peak) peak = n; if (x.length) last = Math.max(last, x[x.length - 1]); }
      return { x: { title: "call", range: [-0.5, last + 0.5] }, y: { title: "prompt tokens", range: [0, 1.06 * peak] },
        lines: data.lines.map(([x, y], k) => ({ name: data.names[k], x, y, ink: INK[k], dash: DASH[k], hover: x.map((c, i) => `${safe(data.names[k])}<br>call ${num(c)}: ${y[i] == null ? "size unknown" : num(y[i]) + " tokens"}`) })) };
    },
    draw(s) { set(parts, { d: [...new Set(data.places.map(c => s.X(c).toFixed(0)))].map(x => `M${x} ${s.lower - 9}v9`).join("") }); },
    clicked(px, _, s) {
      const call = (px - s.X(0)) / (s.X(1) - s.X(0));
      const k = data.places.reduce((best, c, i) => Math.abs(c - call) < Math.abs(data.places[best] - call) ? i : best, 0);
      if (data.differing.length) list.choose(data.differing[k]);
    },
  };
  const s = stage(model, el, "prompt tokens of each call of both sessions; a click goes to the difference that is nearest", view);
  const parts = node("path", { stroke: STOP, "stroke-width": 2 }, s.marks);
  const legend = make("div", "names", s.bar);
  const step = (label, by) => { const b = make("button", "", s.bar, label); b.type = "button"; b.addEventListener("click", () => {
    const all = data.differing, now = list.at, to = by > 0 ? all.find(r => r > now) : [...all].reverse().find(r => r < now);
    if (to !== undefined) list.choose(to);
  }); };
  step("‹ difference", -1); step("difference ›", 1);
  const list = roll(s.below, { label: "entries of both sessions", id: "s" + Math.random().toString(36).slice(2) + "-", piece: n => request(n * PIECE), chosen: read,
    fill(line, [place, differs, one, other]) {
      line.classList.add("pair"); if (differs) line.classList.add("apart");
      make("span", "n", line, num(place)); make("span", "", line, differs ? "≠" : "=");
      for (const [name, text] of [one, other]) { const c = make("span", "", line, name ? `${name}  ${text}` : "–"); c.title = text; }
    } });
  list.box.style.height = "264px"; list.box.classList.add("framed");
  const two = make("div", "two", s.below), panes = [0, 1].map(() => { const box = make("div", "read", two); return [make("div", "soft", box), make("pre", "", box)]; });
  for (const [, pre] of panes) pre.tabIndex = 0;
  function request(from) { model.send({ kind: "rows", at: String(from), key: String(from), from }); }
  function read(row) { of = String(row[0]); s.put("row", row[0]); model.send({ kind: "text", at: of, key: of, row: row[0] }); }
  function fresh() {
    data = model.get("data"); s.said.textContent = data.head; legend.replaceChildren();
    data.names.forEach((name, k) => { const one = make("span", "", legend), g = node("svg", { width: 30, height: 8, "aria-hidden": "true" }, one);
      node("line", { x1: 0, x2: 24, y1: 4, y2: 4, "stroke-width": 2, stroke: INK[k], "stroke-dasharray": STROKE[DASH[k]] }, g); one.append(name); panes[k][0].textContent = name; });
    list.anew(data.total); list.put(data.first.from / PIECE, data.first.rows);
    list.choose(Math.min(model.get("row"), Math.max(0, data.total - 1)));
  }
  /** The texts, with what they have in common at both ends pale and the rest marked. */
  function shown(texts) {
    const [a, b] = texts;
    let i = 0, j = 0;
    if (a && b) { while (i < a.length && i < b.length && a[i] === b[i]) i++; while (j < Math.min(a.length, b.length) - i && a[a.length - 1 - j] === b[b.length - 1 - j]) j++; }
    texts.forEach((text, k) => {
      const pre = panes[k][1];
      pre.replaceChildren(text.slice(0, i));
      if (a !== b && text.length > i + j) make("mark", "", pre, text.slice(i, text.length - j));
      pre.append(text.slice(text.length - j));
      if (!text) pre.textContent = "nothing here";
      const hit = pre.querySelector("mark"); if (hit) pre.scrollTop = Math.max(0, hit.offsetTop - pre.offsetTop - 40);
    });
  }
  s.on("msg:custom", told => {
    if (told.kind === "rows" && told.rows) list.put(told.from / PIECE, told.rows);
    else if (told.kind === "text" && told.key === of) shown(told.texts || [told.error || "", ""]);
  });
  s.on("change:data", fresh);
  s.on("change:row", () => { if (list.at !== model.get("row")) list.choose(model.get("row")); });
  fresh();
  return s.end;
}
