// What happened to the run: starts, ends, losses, recoveries, checkpoints, messages.
import {fill, h, link, table} from '/static/dom.js';
import {count, missing, time, toNumber} from '/static/format.js';
import {eventKinds} from '/static/marks.js';

const severities = {info: {sign: '', rank: 0}, warning: {sign: '▲ ', rank: 1}, error: {sign: '✕ ', rank: 2}};

export async function show(page) {
  let events = [];
  let asked = '';
  const filter = h('input', {type: 'search', 'data-filter': true, placeholder: 'Filter by text, kind, worker …',
    'aria-label': 'Filter of events', value: page.query.get('q') ?? ''});
  const choices = [['', 'all'], ['warning', 'warnings and errors'], ['error', 'errors']];
  const least = h('select', {'aria-label': 'Severity'}, choices.map(
      ([value, name]) => h('option', {value, selected: value === (page.query.get('least') ?? '')}, name)));
  const summary = h('p', {class: 'note'});
  const made = table({caption: 'Events', key: (event) => `${event.time} ${event.kind} ${event.text}`,
    empty: 'No event matches. Builds before schema version 5 recorded none.', rowClass: (event) => event.severity, columns: [
      {title: 'Time', cell: (event) => h('time', {datetime: event.time}, time(event.time))},
      {title: 'Step', number: true, cell: (event) => toNumber(event.step) > 0
        ? link(page.address('step', event.step), count(event.step)) : count(event.step)},
      {title: 'Kind', cell: (event) => {
        const kind = eventKinds[event.kind];
        return kind ? `${kind.sign} ${kind.name}` : `· ${event.kind}`;
      }},
      {title: 'Severity', cell: (event) => h('span', {class: `severity ${event.severity}`},
          `${severities[event.severity]?.sign ?? ''}${event.severity}`)},
      {title: 'Worker', cell: (event) => event.worker || missing},
      {title: 'What happened', wide: true, cell: (event) => h('span', {class: 'lines'}, event.text)}]});

  function draw() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rank = severities[least.value]?.rank ?? 0;
    const shown = events.filter((event) => (severities[event.severity]?.rank ?? 0) >= rank && words.every((word) =>
      `${event.text} ${event.kind} ${event.worker} ${event.severity}`.toLowerCase().includes(word)));
    made.update(shown);
    fill(summary, `${count(shown.length)} of the newest ${count(events.length)} events are shown. ` +
      'They stay also where a recovery undid steps.');
  }
  function changed() {
    const query = new URLSearchParams();
    if (filter.value) query.set('q', filter.value);
    if (least.value) query.set('least', least.value);
    page.remember(query);
    draw();
  }
  filter.addEventListener('input', changed);
  least.addEventListener('change', changed);
  async function refresh(run) {
    const key = JSON.stringify([run.status.step, run.status.state, run.status.events]);
    if (key === asked) return;
    ({events} = await page.ofRun('/events', {limit: 1000}));
    asked = key;
    draw();
  }
  await refresh(page.run);
  page.root.append(h('div', {class: 'title'}, h('h1', null, 'Events'), filter,
      h('label', {class: 'inline'}, 'Severity ', least)),
      summary, made.element);
  return {refresh};
}
