"""What a picture must not have: texts that are on each other, and texts that are cut off."""

from __future__ import annotations

from typing import Any

LOOK = """() => {
  const wrong = [], seen = e => { const s = getComputedStyle(e); return s.visibility !== 'hidden' && +s.opacity > 0.05 && e.textContent.trim(); };
  const area = r => Math.max(0, r.width) * Math.max(0, r.height);
  for (const [n, box] of [...document.querySelectorAll('[data-picture]')].entries()) {
    const name = box.dataset.picture, wide = document.documentElement.clientWidth;
    const own = box.getBoundingClientRect();
    if (own.right > wide + 1) wrong.push(`${name}: wider than the page by ${Math.round(own.right - wide)} px`);
    const texts = [...box.querySelectorAll('svg text')].filter(e => seen(e) && !e.closest('.modebar,.hoverlayer'))
      .map(e => ({ said: e.textContent.trim().slice(0, 40), r: e.getBoundingClientRect(), turned: /rotate\\((?!0)/.test(e.getAttribute('transform') || ''), svg: e.ownerSVGElement }))
      .filter(t => area(t.r) > 0);
    const tools = [...box.querySelectorAll('.modebar-group')].map(e => e.getBoundingClientRect()), title = box.querySelector('.gtitle')?.getBoundingClientRect();
    if (title && tools.some(r => area(r) && r.left < title.right && r.right > title.left && r.top < title.bottom && r.bottom > title.top)) wrong.push(`${name}: the toolbar lies on the title`);
    for (const [i, a] of texts.entries()) {
      const frame = a.svg.getBoundingClientRect();
      const out = Math.max(frame.left - a.r.left, a.r.right - frame.right, frame.top - a.r.top, a.r.bottom - frame.bottom);
      if (out > 3) wrong.push(`${name}: "${a.said}" is cut off by ${Math.round(out)} px`);
      for (const b of texts.slice(i + 1)) {
        const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left), h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
        if (w > 2 && h > 3 && w * h > 0.12 * Math.min(area(a.r), area(b.r))) wrong.push(`${name}: "${a.said}" lies on "${b.said}" (${Math.round(w)} x ${Math.round(h)} px)`);
      }
    }
  }
  return wrong;
}"""
INK = """() => {
  const light = c => { const [r, g, b] = (c.match(/[\\d.]+/g) || [0, 0, 0]).map(Number).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const dark = matchMedia('(prefers-color-scheme: dark)').matches, back = light(dark ? 'rgb(18,18,18)' : 'rgb(255,255,255)'), wrong = [];
  const inside = (r, x, y) => r.left <= x && x <= r.right && r.top <= y && y <= r.bottom;
  const onMark = e => { const { left, top, width, height } = e.getBoundingClientRect(); return [...e.ownerSVGElement.querySelectorAll('rect, path')].some(m => {
    const s = getComputedStyle(m); return s.fill.startsWith('rgb(') && s.fillOpacity > 0.9 && inside(m.getBoundingClientRect(), left + width / 2, top + height / 2); }) || e.closest('.heatmaplayer, .hm'); };
  for (const box of document.querySelectorAll('[data-picture]')) for (const e of box.querySelectorAll('svg text')) {
    const fill = getComputedStyle(e).fill;
    if (!e.textContent.trim() || !fill.startsWith('rgb') || onMark(e)) continue;
    const [hi, lo] = [light(fill), back].sort((a, b) => b - a), contrast = (hi + 0.05) / (lo + 0.05);
    const least = dark ? 7 : 4.5;
    if (contrast < least) wrong.push(`${box.dataset.picture}: "${e.textContent.trim().slice(0, 30)}" has a contrast of ${contrast.toFixed(1)}`);
  }
  return wrong;
}"""


WORDS = """() => {
  const parse = c => { const n = (c.match(/[\\d.]+/g) || []).map(Number); if (c.startsWith('color(srgb')) { n[0] *= 255; n[1] *= 255; n[2] *= 255; } return { rgb: n.slice(0, 3), a: n[3] ?? 1 }; };
  const over = (top, back) => top.rgb.map((v, i) => v * top.a + back[i] * (1 - top.a));
  const light = rgb => { const [r, g, b] = rgb.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const dark = matchMedia('(prefers-color-scheme: dark)').matches, paper = dark ? [18, 18, 18] : [255, 255, 255], wrong = [];
  const ground = e => { const above = []; for (let p = e; p; p = p.parentElement) { const c = parse(getComputedStyle(p).backgroundColor); if (c.a > 0) above.unshift(c); } return above.reduce((back, c) => over(c, back), paper); };
  for (const box of document.querySelectorAll('[data-picture]')) for (const e of box.querySelectorAll('*')) {
    if (e.closest('svg') || !e.checkVisibility() || /^(OPTION|STYLE|SCRIPT|BUTTON|INPUT)$/.test(e.tagName)) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const back = ground(e), [hi, lo] = [light(over(parse(getComputedStyle(e).color), back)), light(back)].sort((a, b) => b - a), contrast = (hi + 0.05) / (lo + 0.05);
    if (contrast < (dark ? 7 : 4.5)) wrong.push(`${box.dataset.picture}: "${e.textContent.trim().slice(0, 30)}" has a contrast of ${contrast.toFixed(1)}`);
  }
  return wrong;
}"""


def gallery(pictures: dict[str, str]) -> str:
    """Pieces of HTML in one page, each under its name."""
    boxes = "".join(
        f'<section><h3>{name}</h3><div data-picture="{name}">{html}</div></section>'
        for name, html in pictures.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>pictures</title>'
        "<style>:root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:12px}"
        "@media (prefers-color-scheme:dark){body{background:#121212}}"
        f"</style></head><body>{boxes}</body></html>"
    )


def faults(page: Any) -> list[str]:
    """What is wrong with the pictures of a page."""
    return [*page.evaluate(LOOK), *page.evaluate(INK), *page.evaluate(WORDS)]
