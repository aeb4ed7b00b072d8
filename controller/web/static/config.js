// The resolved configuration of the run.
import {fill, h, note, section, simpleTable} from '/static/dom.js';
import {count} from '/static/format.js';
import {offer} from '/static/series.js';

const depth = (line) => line.length - line.trimStart().length;

// The lines that have the text, with the keys above them, so that one sees where they belong.
function matching(lines, text) {
  const keep = new Set();
  lines.forEach((line, i) => {
    if (!line.toLowerCase().includes(text)) return;
    keep.add(i);
    let level = depth(line);
    for (let above = i - 1; above >= 0 && level > 0; --above) {
      if (lines[above].trim() === '' || depth(lines[above]) >= level) continue;
      keep.add(above);
      level = depth(lines[above]);
    }
  });
  return keep;
}

function drawLine(line, i, text) {
  const at = text ? line.toLowerCase().indexOf(text) : -1;
  const end = at + text.length;
  const found = at < 0 ? [line] : [line.slice(0, at), h('mark', null, line.slice(at, end)), line.slice(end)];
  return h('li', {value: String(i + 1)}, ...found);
}

export async function show(page) {
  const {yaml, differences} = await page.ofRun('/config');
  const lines = (yaml ?? '').replace(/\n$/, '').split('\n');
  const list = h('ol', {class: 'code', tabindex: '0', 'aria-label': 'Configuration'});
  const summary = h('p', {class: 'note', role: 'status'});
  const filter = h('input', {type: 'search', 'data-filter': true, placeholder: 'Filter by key or value …',
    'aria-label': 'Filter of the configuration', value: page.query.get('q') ?? '', oninput: () => {
      page.remember(new URLSearchParams(filter.value ? {q: filter.value} : {}));
      draw();
    }});
  function draw() {
    const text = filter.value.trim().toLowerCase();
    const keep = text ? matching(lines, text) : null;
    list.replaceChildren(...lines.map((line, i) => !keep || keep.has(i) ? drawLine(line, i, text) : null).filter(Boolean));
    fill(summary, keep ? `${count(keep.size)} of ${count(lines.length)} lines, each with the keys above it.`
      : `${count(lines.length)} lines: all keys, also those with their default value.`);
  }
  if (!yaml) {
    page.root.append(h('h1', null, 'Configuration'), note('The run recorded no configuration.'));
    return {};
  }
  draw();
  const changed = !differences ? null : section('Changed from the defaults', differences.length > 0
    ? simpleTable({caption: 'Changed from the defaults', navigable: true, columns: [
      {title: 'Key', cell: (one) => h('code', null, one.key)},
      {title: 'Value', wide: true, cell: (one) => h('code', null, one.value)},
      {title: 'Default', wide: true, cell: (one) => h('code', {class: 'muted'}, one.default || 'none')}]}, differences)
    : note('All keys have their default values.'));
  page.root.append(h('div', {class: 'title'}, h('h1', null, 'Configuration'), filter,
      h('button', {type: 'button', onclick: () => offer(`${page.run.id}.yaml`, yaml, 'text/yaml')}, 'Save as YAML')),
  ...(changed ? [changed] : []), section('All keys', summary, list));
  return {};
}
