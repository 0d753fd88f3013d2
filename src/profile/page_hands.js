// The second half of the page's script: what hands do, and how it starts.
const tip = $('tip');
function showTip(event, html) {
  tip.innerHTML = html; tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(innerWidth - box.width - 6, event.clientX + 14)) + 'px';
  tip.style.top = Math.max(6, event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18) + 'px';
}
const inside = (event) => { const box = event.currentTarget.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
const under = (x) => view.lo + ((x - plot.left) / plot.width) * (view.hi - view.lo);
let drag = null;
const timeline = $('timeline');
timeline.addEventListener('pointerdown', (event) => { drag = { x: event.clientX, lo: view.lo, hi: view.hi, moved: false }; timeline.setPointerCapture(event.pointerId); });
timeline.addEventListener('pointermove', (event) => {
  const [x] = inside(event);
  if (drag) {
    const by = ((drag.x - event.clientX) / plot.width) * (drag.hi - drag.lo);
    if (Math.abs(drag.x - event.clientX) > 3) drag.moved = true;
    if (drag.moved) { tip.hidden = true; setView(drag.lo + by, drag.hi + by); return; }
  }
  const s = stateAt(under(x)), i = s - 1;
  const head = i >= 0 ? `<b>${count(s)}</b> · ${duration(time[s])} · ${data.actions[events.action[i]].replace('_', ' ')} ${bytes(events.size[i])}<div class="site">${escape(sites[events.site[i]][0])} ${place(events.site[i])}</div>` : '<b>before the first event</b>';
  const rows = [...ORDER].reverse().filter((k) => sums[k][s]).map((k) => row(`<span class="tag" style="background:${look.layers[k]}"></span>${NAMES[k]}`, bytes(sums[k][s])));
  showTip(event, `${head}<table>${row('<b>reserved</b>', bytes(reserved[s]))}${row('<b>allocated</b>', bytes(allocated[s]))}${rows.join('')}</table>`);
});
timeline.addEventListener('pointerup', (event) => { if (drag && !drag.moved) choose(stateAt(under(inside(event)[0]))); drag = null; });
timeline.addEventListener('pointerleave', () => { tip.hidden = true; });
timeline.addEventListener('wheel', (event) => {
  event.preventDefault();
  const middle = under(inside(event)[0]), by = Math.exp(event.deltaY * 0.0016);
  setView(middle - (middle - view.lo) * by, middle + (view.hi - middle) * by);
}, { passive: false });
timeline.addEventListener('dblclick', () => setView(0, whole()));
timeline.addEventListener('keydown', (event) => {
  const step = event.shiftKey ? Math.max(1, Math.round(n / 100)) : 1, keys = { ArrowLeft: view.at - step, ArrowRight: view.at + step, Home: 0, End: n };
  if (event.key in keys) { choose(keys[event.key]); event.preventDefault(); }
});
$('overview').addEventListener('pointerdown', (event) => { event.currentTarget.setPointerCapture(event.pointerId); pan(event); });
$('overview').addEventListener('pointermove', (event) => { if (event.buttons) pan(event); });
function pan(event) {
  const middle = ((inside(event)[0] - LEFT) / plot.width) * whole(), half = (view.hi - view.lo) / 2;
  setView(middle - half, middle + half);
}
const hit = (event) => { const [x, y] = inside(event); return shown.findLast((r) => x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + r.h); };
$('segments').addEventListener('pointermove', (event) => {
  const found = hit(event);
  if (!found) { tip.hidden = true; return; }
  const i = found.block, segment = found.segment;
  if (i < 0) {
    showTip(event, `<b>free</b> in a segment of ${bytes(segments.size[segment])}<div class="site">bought for stream ${segments.stream[segment]}, event ${count(segments.begin[segment])}</div>`);
    return;
  }
  const stack = blocks.stack[i] >= 0 ? `<pre>${escape(data.stacks[blocks.stack[i]])}</pre>` : '';
  const until = blocks.end[i] < 0 ? 'to the end' : 'until event ' + count(blocks.end[i]);
  showTip(event, `<b>${escape(sites[blocks.site[i]][0])}</b><div class="site">${place(blocks.site[i])}</div><table>` +
    row(`<span class="tag" style="background:${colorOf(i)}"></span>${data.categories[blocks.category[i]]}`, bytes(blocks.requested[i])) + row('block', bytes(blocks.size[i])) +
    row('offset in the segment', bytes(blocks.address[i] - segments.address[segment])) + row('stream', blocks.stream[i]) +
    row('lives', `from event ${count(blocks.begin[i])} ${until}`) + `</table>${stack}`);
});
$('segments').addEventListener('pointerleave', () => { tip.hidden = true; });
$('segments').addEventListener('click', (event) => { const found = hit(event); view.block = found && found.block !== view.block ? found.block : -1; dirty(); });
for (const id of ['around', 'ooms']) $(id).addEventListener('click', (event) => { const line = event.target.closest('[data-state]'); if (line) choose(+line.dataset.state, true); });
$('holders').addEventListener('pointerover', (event) => { const line = event.target.closest('[data-site]'); const site = line ? +line.dataset.site : -1; if (site !== view.site) { view.site = site; drawSegments(); } });
$('holders').addEventListener('pointerleave', () => { view.site = -1; drawSegments(); });
$('legend').addEventListener('click', (event) => {
  const button = event.target.closest('[data-layer]'), k = button ? +button.dataset.layer : -1;
  if (k < 0) return;
  if (!view.hidden.delete(k)) view.hidden.add(k);
  dirty();
});
function setAxis(byTime) {
  if (byTime === view.byTime) return;
  const [lo, hi] = [stateAt(view.lo), stateAt(view.hi)];
  view.byTime = byTime;
  setView(positionOf(lo), positionOf(hi));
  dirty();
}
$('by-event').addEventListener('click', () => setAxis(false));
$('by-time').addEventListener('click', () => setAxis(true));
$('whole').addEventListener('click', () => setView(0, whole()));
function setTheme(name) { document.documentElement.dataset.theme = name; readLook(); strip = null; dirty(); }
$('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
addEventListener('resize', dirty);

// --- start: `#event=120&lo=0&hi=500&axis=time&theme=dark`; `#measure` draws many frames and writes down how long they took ---
const asked = new URLSearchParams(location.hash.slice(1));
document.documentElement.dataset.theme = asked.get('theme') || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
readLook();
drawOnce();
if (asked.get('axis') === 'time') { view.byTime = true; view.hi = whole(); }
if (asked.has('event')) choose(+asked.get('event'));
if (asked.has('lo')) setView(+asked.get('lo'), +asked.get('hi'));
draw(true);
if (asked.has('measure')) measure();
function measure() {
  const load_ms = performance.now() - started, zooms = [], moments = [];
  const settle = () => ['timeline', 'segments', 'overview'].forEach((id) => $(id).getContext('2d').getImageData(0, 0, 1, 1));
  for (let frame = 0; frame < 60; frame++) {
    const all = whole(), width = all / (1 + (frame % 12) * (frame % 12)), middle = (all * (frame + 0.5)) / 60, begin = performance.now(), moment = frame % 2 === 1;
    view.lo = Math.max(0, middle - width / 2); view.hi = Math.min(all, view.lo + width);
    if (moment) view.at = Math.floor((n * frame) / 60);
    draw(moment); settle();
    (moment ? moments : zooms).push(performance.now() - begin);
    if (frame === 29) { setAxis(true); setTheme('dark'); }
  }
  const canvas = $('timeline'), colors = new Set();
  for (const pixel of new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)) colors.add(pixel);
  const hands = touch();
  const times = (list) => [0, list.length >> 1].map((at) => +list.sort((a, b) => a - b)[at].toFixed(2)); // best, median
  const out = document.createElement('pre');
  out.id = 'measured'; out.hidden = true;
  out.textContent = JSON.stringify({ events: n, load_ms: +load_ms.toFixed(1), zoom_ms: times(zooms), moment_ms: times(moments), colors: colors.size,
    peak_reserved: reserved[peak.reserved], peak_allocated: allocated[peak.allocated], last_reserved: reserved[n], last_allocated: allocated[n],
    ooms: oomStates.length, holders: document.querySelectorAll('#holders tr').length, hands, resources: performance.getEntriesByType('resource').length, errors });
  document.body.append(out);
}
// A hover, a turn of the wheel, a key and a hover over every block: what a hand would do.
function touch() {
  const at = (canvas, kind, x, y, more) => {
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new kind.of(kind.name, { clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, ...more }));
  };
  const move = { of: PointerEvent, name: 'pointermove' }, wheel = { of: WheelEvent, name: 'wheel' };
  setView(0, whole());
  choose(peak.allocated);
  draw(true);
  at(timeline, move, plot.left + plot.width / 2, 100);
  const hover = tip.textContent, before = view.hi - view.lo;
  at(timeline, wheel, plot.left + plot.width / 2, 100, { deltaY: -400 });
  const zoom = (view.hi - view.lo) / before, moment = view.at;
  timeline.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft' }));
  draw(true);
  const blocksSeen = shown.filter((r) => r.block >= 0).map((r) => { at($('segments'), move, r.x + r.w / 2, r.y + 5); return tip.textContent; });
  tip.hidden = true;
  return { hover, zoom, step: moment - view.at, blocks: blocksSeen.length, named: blocksSeen.filter((text) => /:\d+/.test(text)).length };
}
