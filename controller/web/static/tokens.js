// The tokens of a sample, a window at a time: coloured by one of their values. All values of the
// token under the pointer or with the focus stand in a panel beside them.
import {fill, h, note, section, textNodes} from '/static/dom.js';
import {count, missing, number, visible} from '/static/format.js';
import {absent, measures, scaleOf} from '/static/token_scale.js';

const windowTokens = 512;

const silent = 'The server does not answer.';
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');

// A newline is a mark and the break (app.css draws the mark, so that the text stays the token's).
const shownText = (text) => text.split(/(\n)/).filter(Boolean).map((part) =>
  (part === '\n' ? h('span', {class: 'newline'}, part) : textNodes(part)));

const quoted = (text) => (text === '' ? 'a part of a character' : `“${text.replaceAll('\n', '↵')}”`);

// `sample`: its record. The section with its tokens, or with the sentence that says why there are none.
export async function tokensOf(page, sample) {
  const path = `/samples/${encodeURIComponent(sample.step)}/${encodeURIComponent(sample.sample_id)}/tokens`;
  const ask = (from) => page.ofRun(path, {from, count: windowTokens});
  const windowOf = (position) => Math.floor(position / windowTokens) * windowTokens;
  const versions = [...new Set((sample.segments ?? []).map((one) => one.weight_version))];
  let data;
  const home = () => windowOf(Math.max(0, Math.min(data.prompt_tokens, data.tokens - 1)));  // where the response begins
  try {
    const wanted = page.query.get('from');
    data = await ask(windowOf(Math.max(0, Number(wanted ?? sample.prompt_tokens) || 0)));
    const first = home();
    if (data.ids.length === 0 || (wanted === null && data.from !== first)) data = await ask(first);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    return section('Tokens', note(error.status ? sentence(error.message) : silent));
  }
  const has = (measure) => measure.needs.every((name) => data.values[name]);
  const there = measures.filter(has);
  const choices = there.filter((measure) => measure.scale);
  let chosen = choices.find((measure) => measure.key === page.query.get('colour')) ?? choices[0];
  let current = 0;  // the token that Tab reaches, in the window
  let elements = [];

  const colour = h('select', {'data-colour': true}, choices.map((measure) =>
    h('option', {value: measure.key, selected: measure === chosen}, measure.name)));
  const says = h('span', {class: 'muted', role: 'status'});
  const to = (name, by) => h('button', {type: 'button', 'data-window': name, onclick: () => turn(by)},
      by < 0 ? '‹ Earlier' : 'Later ›');
  const [earlier, later] = [to('earlier', -windowTokens), to('later', windowTokens)];
  const legend = h('div', {class: 'token-legend'});
  const problem = h('p', {class: 'alert warn', role: 'alert', hidden: true});
  const list = h('div', {class: 'tokens', role: 'listbox', 'aria-label': 'Tokens', 'aria-orientation': 'horizontal'});
  const rows = [['Position'], ['Id'], ['Text'], ...there.map((measure) => [measure.name, measure])];
  const cells = rows.map(() => h('dd'));
  const panel = h('dl', {class: 'token-panel', id: 'token-panel', 'aria-label': 'The token’s values'},
      rows.map(([name], i) => h('div', null, h('dt', null, name), cells[i])));

  const inResponse = (i) => data.from + i - data.prompt_tokens;
  const textOf = (i) => (data.texts.length > 0 ? data.texts[i] : String(data.ids[i]));
  const isMasked = (i) => inResponse(i) >= 0 && (data.values.mask?.[i] === 0 || (sample.segments ?? []).some((one) =>
    !one.trained && inResponse(i) >= Number(one.begin) && inResponse(i) < Number(one.begin) + Number(one.length)));
  const valueOf = (measure, i) => measure.of(data.values, i) ?? null;

  function showValues(i) {
    const place = inResponse(i);
    fill(cells[0], `${count(data.from + i + 1)} · ${place < 0 ? 'prompt' : `response ${count(place + 1)}`}`);
    fill(cells[1], String(data.ids[i]));
    fill(cells[2], data.texts.length > 0 ? quoted(textOf(i)) : missing);
    rows.slice(3).forEach(([, measure], row) => {
      const x = valueOf(measure, i);
      fill(cells[row + 3], measure.key === 'version' ? count(x) : number(x, 6));
    });
  }
  function reach(i, focus) {
    elements[current]?.setAttribute('tabindex', '-1');
    elements[current]?.setAttribute('aria-selected', 'false');
    current = i;
    elements[i].setAttribute('tabindex', '0');
    elements[i].setAttribute('aria-selected', 'true');
    showValues(i);
    if (focus) elements[i].focus();
  }
  function paint() {
    const values = elements.map((_, i) => (inResponse(i) < 0 ? null : valueOf(chosen, i)));
    const known = values.filter((x) => x !== null);
    const scale = scaleOf(chosen, known, versions);
    elements.forEach((element, i) => {
      const x = values[i];
      const changes = chosen.scale === 'classes' && x !== null && i > 0 && values[i - 1] !== null && values[i - 1] !== x;
      element.className = ['token', inResponse(i) < 0 ? 'of-prompt' : '', x === null ? '' : scale.classOf(x),
        changes ? 'changes' : '', isMasked(i) ? 'masked' : ''].filter(Boolean).join(' ');
      element.ariaLabel = visible([`${count(data.from + i + 1)}: ${quoted(textOf(i))}`,
        inResponse(i) < 0 ? 'prompt' : '', x === null ? '' : `${chosen.name} ${number(x, 4)}`,
        isMasked(i) ? 'left out' : ''].filter(Boolean).join(', '));
    });
    fill(legend, h('p', {class: 'note'}, chosen.says), scale.legend);
  }
  function draw() {
    elements = data.ids.map((_, i) => h('span', {role: 'option', tabindex: '-1', 'aria-selected': 'false',
      'data-at': String(i), 'aria-describedby': 'token-panel'}, shownText(textOf(i))));
    const boundary = data.prompt_tokens - data.from;
    list.replaceChildren(...elements.flatMap((element, i) =>
      (i === boundary ? [h('span', {class: 'boundary', role: 'presentation'}), element] : [element])));
    list.classList.toggle('ids', data.texts.length === 0);
    fill(says, `tokens ${count(data.from + 1)} to ${count(data.from + data.ids.length)} of ${count(data.tokens)}`);
    for (const [button, ends] of [[earlier, data.from === 0], [later, data.from + data.ids.length >= data.tokens]]) {
      button.hidden = data.tokens <= windowTokens;
      button.setAttribute('aria-disabled', String(ends));
      button.classList.toggle('off', ends);
    }
    paint();
    current = 0;
    if (elements.length > 0) reach(boundary > 0 && boundary < elements.length ? boundary : 0);
  }
  // The address says what is shown, and the next sample is shown alike.
  function remember() {
    page.query.set('colour', chosen.key);
    if (data.from === home()) page.query.delete('from');
    else page.query.set('from', String(data.from));
    page.remember(page.query);
    keepColour();
  }
  function keepColour() {
    for (const link of page.root.querySelectorAll('a[data-previous], a[data-next]')) {
      link.hash = `${link.hash.split('?')[0]}?colour=${chosen.key}`;
    }
  }
  async function turn(by) {
    const from = data.from + by;
    if (from < 0 || from >= data.tokens) return;
    try {
      data = await ask(from);
      problem.hidden = true;
      draw();
      remember();
    } catch (error) {
      if (error.name === 'AbortError') return;
      problem.hidden = false;
      fill(problem, error.status ? error.message : silent);
    }
  }
  // The token of the next line, or of the one before, that is nearest.
  function across(by) {
    const box = (i) => elements[i].getClientRects()[0] ?? elements[i].getBoundingClientRect();
    const start = box(current);
    let best = current;
    let line = null;
    for (let i = current + by; i >= 0 && i < elements.length; i += by) {
      const at = box(i);
      if (Math.abs(at.top - start.top) < 4) continue;
      if (line !== null && Math.abs(at.top - line) >= 4) break;
      if (line === null || Math.abs(at.left - start.left) < Math.abs(box(best).left - start.left)) best = i;
      line = at.top;
    }
    return best;
  }
  const moves = {ArrowRight: () => Math.min(current + 1, elements.length - 1), ArrowLeft: () => Math.max(current - 1, 0),
    ArrowDown: () => across(1), ArrowUp: () => across(-1), Home: () => 0, End: () => elements.length - 1};
  const under = (event) => event.target.closest('.token')?.dataset.at;
  colour.addEventListener('change', () => {
    chosen = choices.find((measure) => measure.key === colour.value);
    paint();
    remember();
  });
  list.addEventListener('keydown', (event) => {
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    reach(moves[event.key](), true);
  });
  list.addEventListener('focusin', (event) => under(event) !== undefined && reach(Number(under(event))));
  list.addEventListener('pointerover', (event) => under(event) !== undefined && showValues(Number(under(event))));
  list.addEventListener('pointerleave', () => showValues(current));
  draw();
  const lacks = Object.keys(absent).filter((name) => !data.values[name]).map((name) => absent[name]);
  return section('Tokens', h('div', {class: 'filters'}, h('label', null, h('span', null, 'Colour by'), colour),
      h('span', {class: 'steps'}, earlier, later, says)), problem, data.note ? note(sentence(data.note)) : null,
  h('div', {class: 'token-view'}, h('div', null, legend, list), panel), lacks.length > 0 ? note(lacks.join(' ')) : null);
}
