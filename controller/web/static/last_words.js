// What a run that was killed or failed did last: the controller's calls and the ends of the logs.
import {details, h, note, section, simpleTable} from '/static/dom.js';
import {count, duration, missing, time, toNumber} from '/static/format.js';

const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

const answered = (call) => {
  if (!call.answered_at) return h('span', {class: 'bad-text'}, '✕ no answer came');
  const after = seconds(call.began_at, call.answered_at);
  const failed = call.code && call.code !== 'OK';
  const code = failed ? h('span', {class: 'bad-text'}, `✕ ${call.code}`) : call.code || 'answered';
  return after >= 0 ? [code, ` after ${duration(after)}`] : code;
};

const callsTable = (calls) => simpleTable({caption: 'The last call to each worker', columns: [
  {title: 'Worker', cell: (call) => call.worker},
  {title: 'Call', cell: (call) => call.method || missing},
  {title: 'Step', number: true, cell: (call) => toNumber(call.step) > 0 ? count(call.step) : missing},
  {title: 'Began', cell: (call) => time(call.began_at)},
  {title: 'Answer', cell: answered}]}, calls);

// Nothing where the run has neither.
export function lastWords(status) {
  const {calls = [], logs = []} = status;
  if (calls.length === 0 && logs.length === 0) return null;
  const phase = status.phase ? note(`It was in the phase ${status.phase}` +
    (status.phase_began_at ? `, which began ${time(status.phase_began_at)}.` : '.')) : null;
  return section('What it did last', phase, calls.length > 0 ? callsTable(calls) : null,
      logs.map((log) => details(`End of ${log.file}`, () => log.lines.length > 0
        ? h('pre', {class: 'log', tabindex: '0', 'aria-label': `End of ${log.file}`}, log.lines.join('\n'))
        : note('The log is empty.')).element));
}
