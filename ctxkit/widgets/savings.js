function render({ model, el }) {
  const rows = () => model.get("data").compactions;                // each: name, at, before, after, put, usd, usd_source, what, source
  const details = new Map(), ROOM = 240;
  let asked = null;
  const known = c => c.saved != null;
  const title = c => (model.get("data").several ? c.name + ", " : "") + `compaction ${num(c.number)}`;
  const sizes = c => known(c) ? `${num(c.before)} → ${num(c.after)} tokens, ${per(c.saved)} saved` : "the log does not tell its sizes";
  const where = c => c.call == null ? c.turn == null ? "after the last call" : `after turn ${num(c.turn)}` : `before call ${num(c.call)}`;
  const view = {
    empty: () => !rows().length,
    spec() {
      const all = rows(), n = all.length, each = f => all.map(f);
      let top = 1;
      for (const c of all) top = Math.max(top, c.before || 0, c.after || 0);
      const hover = each(c => `${safe(title(c))}, ${where(c)}<br>${sizes(c)}<br>${safe(c.what)}`), x = each((_, i) => i);
      if (n > ROOM) {                                              // one bar a pixel is none: lines of before and after
        const kept = thinned(each(c => c.after ?? 0), 2000);
        const line = (name, key, ink, dash) => ({ name, ink, dash, x: kept, y: kept.map(i => all[i][key]), hover: kept.map(i => hover[i]) });
        return { x: { title: "compaction", range: [-0.7, n - 0.3] }, y: { title: "tokens", range: [0, 1.08 * top] },
          lines: [line("before", "before", INK[0], "dot"), line("after", "after", INK[1], "solid")] };
      }
      return { x: { title: "compaction", range: [-0.7, Math.max(n, 1) - 0.3] }, y: { title: "tokens in the window", range: [0, 1.15 * top] }, lines: [],
        bars: n ? [{ name: "kept", x, y: each(c => c.kept), ink: INK[1], hover },
          { name: "saved", x, y: each(c => c.freed), ink: INK[0], pattern: "/", hover },
          { name: "grew", x, y: each(c => c.grown), ink: STOP, pattern: "x", hover }] : [] };
    },
    draw(s) {
      const all = rows(), data = model.get("data"), k = model.get("picked"), c = all[k];
      let before = 0, freed = 0, some = 0, cost = 0, priced = 0;
      const from = new Set();
      for (const one of all) { if (known(one)) { before += one.before; freed += one.freed - one.grown; some++; } if (one.usd != null) { cost += one.usd; priced++; if (one.usd_source) from.add(one.usd_source); } }
      s.said.textContent = !all.length ? (data.hides ? "The log cannot tell of compactions." : "Nothing was compacted.")
        : `${many(all.length, "compaction")}: ` + (some ? `${num(freed)} of ${num(before)} tokens saved (${per(before ? freed / before : 0)})` : "the log does not tell their sizes")
          + (priced ? `; ${priced < all.length ? `${num(priced)} with a price` : "they"} cost ${usd(cost)} to make${from.size ? ` (${[...from].sort().join(", ")})` : ""}.` : ".");
      s.note.textContent = [all.length ? "Plain: kept; hatched: saved. Click a bar, or use the arrow keys, to see what it did." : "", data.note].filter(Boolean).join(" ");
      if (c) { const x = s.X(k), half = Math.max(5, s.step * 0.47); set(ring, { x: x - half, width: 2 * half, y: s.upper, height: s.lower - s.upper }); }
      ring.style.display = c ? "" : "none";
      set(knob, { "aria-valuenow": k, "aria-valuemax": Math.max(0, all.length - 1), "aria-valuetext": c ? `${title(c)}: ${sizes(c)}` : "none" });
      words.replaceChildren();
      if (s.step > 42) all.forEach((one, i) => {                   // what it saved, above its bar
        if (known(one)) node("text", { class: "lab", x: s.X(i), y: s.Y(Math.max(one.before, one.after)) - 5, "text-anchor": "middle" }, words, per(one.saved));
      });
      field(k);
      opened();
    },
    clicked(px, py, s) {
      const all = rows(), span = (s.X(1) - s.X(0)) || 1, k = Math.round((px - s.X(0)) / span);
      if (k >= 0 && k < all.length) pick(k);
    },
  };
  const s = stage(model, el, "what each compaction kept and saved", view);
  const words = node("g", {}, s.marks);
  const ring = node("rect", { class: "ring", rx: 3 }, s.marks), knob = s.over;
  const pick = k => { const n = rows().length; if (n) s.put("picked", Math.min(n - 1, Math.max(0, Math.round(k)))); };
  const field = s.field("picked", "compaction", { low: 0, by: 1, set: pick });
  set(knob, { tabindex: 0, role: "slider", "aria-label": "compaction that is shown", "aria-valuemin": 0 });
  knob.addEventListener("keydown", e => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[e.key];
    if (!by) return;
    e.preventDefault(); e.stopPropagation();
    pick(Math.max(0, Math.min(rows().length - 1, model.get("picked") + by)));
  });
  const head = make("div", "said", s.below), more = make("div", "", s.below);

  function opened() {
    const k = model.get("picked"), c = rows()[k];
    if (!c) { head.textContent = ""; more.replaceChildren(); asked = null; return; }
    const key = `${k}/${rows().length}/${c.before}`;
    if (asked === key) return;
    asked = key;
    head.textContent = `${title(c)}, ${where(c)}: ${sizes(c)} (${c.source || "source unknown"})${c.what ? " · " + c.what : ""}`;
    more.replaceChildren();
    if (!c.detail) { make("div", "soft", more, model.get("data").why || "No diff: only its sizes are known: the log has no messages."); return; }
    if (details.has(key)) { told(details.get(key)); return; }
    make("div", "soft", more, "Asking the kernel what it did …");
    model.send({ kind: "detail", at: k, key });
  }
  function told(d) {                                               // sentences, the ledger, the diff, what was needed later
    more.replaceChildren();
    if (d.error) { make("div", "soft", more, d.error); return; }
    for (const line of d.ledger) make("div", "", more, line);
    if (d.changes.length) tabled(make("table", "", more), d.changed, ["message", "name", "what", "before", "after"], d.changes);
    make("div", "said", more, d.needed);
    if (d.items.length) tabled(make("table", "", more), "", ["needed again at", "after", "kind", "item", "then"], d.items);
  }
  s.on("msg:custom", m => {
    if (m?.kind !== "detail") return;
    details.set(m.key, m);
    if (m.key === asked) told(m);
  });
  s.on("change:picked", () => s.soon());
  return s.end;
}
