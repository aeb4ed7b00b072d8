// Prompts and responses of a step: filtered, sorted, searched by the server.
import {debounce, fill, h, link, table} from '/static/dom.js';
import {count, ending, missing, number, percent, toNumber} from '/static/format.js';
import {groupKind} from '/static/step.js';

const presets = [
  ['All', {}], ['Best', {sort: '-reward'}], ['Worst', {sort: 'reward'}], ['Longest', {sort: '-length'}],
  ['Least likely token', {sort: 'min_log_prob'}], ['Most repetitive', {sort: '-repetition'}],
  ['Cut by length', {where: 'end=length'}], ['Mixed groups', {where: 'kind=mixed'}],
];
const sorts = [['', 'group and index'], ['-reward', 'reward, highest first'], ['reward', 'reward, lowest first'],
  ['-length', 'length, longest first'], ['length', 'length, shortest first'],
  ['min_log_prob', 'least likely token first'], ['-repetition', 'most repetitive first']];

const signed = (value) => {
  const text = number(value, 3);
  return toNumber(value) > 0 ? `+${text}` : text;
};

// What tells a prompt from others: its last turn, without the chat template's marks and role names,
// which are the same in all.
function ofPrompt(text) {
  const turns = text.split(/<\|[^|<>]{1,40}\|>/).map((turn) => turn.replace(/^(user|system|assistant)\n/, '').trim());
  const last = turns.filter((turn) => turn !== '' && turn !== 'assistant' && turn !== 'user').at(-1) ?? text;
  return last.length > 200 ? `…${last.slice(-200)}` : last;
}
const ofResponse = (text) => text.length > 400 ? `${text.slice(0, 400)}…` : text;

function columns(page, kinds) {
  return [
    {title: 'Sample', cell: (one) => h('a', {class: 'strong', href: page.address('samples', one.step, one.sample_id)},
        `${one.group}·${one.index}`), hint: 'Group and index in the group'},
    {title: 'Reward', number: true, cell: (one) => number(one.reward, 3)},
    {title: 'Advantage', number: true, cell: (one) => one.evicted ? missing : signed(one.advantage)},
    {title: 'Tokens', number: true, cell: (one) => count(one.response_tokens)},
    {title: 'End', cell: (one) => {
      const name = ending(one.finish_reason);
      return name === 'stop' ? name : h('span', {class: 'warn-text'}, `▲ ${name}`);
    }},
    {title: 'Group', cell: (one) => one.evicted ? groupKind('evicted') : groupKind(kinds().get(one.group))},
    {title: 'Lowest log-prob', number: true, cell: (one) => number(one.min_log_prob, 3)},
    {title: 'Repeated', number: true, cell: (one) => percent(one.repetition, 2)},
    {title: 'Response', wide: true, cell: (one) => one.texts_dropped
      ? h('span', {class: 'note'}, 'The texts of this step are not kept any more.')
      : h('span', {class: 'clip response'}, ofResponse(one.response))},
    {title: 'Prompt', wide: true, cell: (one) => h('span', {class: 'clip'}, ofPrompt(one.prompt ?? ''))},
  ];
}

export async function show(page) {
  const chosen = {step: page.query.get('step') ?? '', where: page.query.get('where') ?? '',
    q: page.query.get('q') ?? '', sort: page.query.get('sort') ?? '', group: page.query.get('group') ?? ''};
  let last = toNumber(page.run.status.made_step) || toNumber(page.run.status.step);
  let rows = [];
  let kinds = new Map();
  let next = '';
  let current = 0;
  let asking = 0;

  const title = h('h1');
  const steps = h('span', {class: 'steps'});
  const summary = h('p', {class: 'note', role: 'status'});
  const problem = h('p', {class: 'alert warn', hidden: true});
  const made = table({caption: 'Samples', columns: columns(page, () => kinds), key: (one) => one.sample_id,
    empty: 'No sample of this step matches.'});
  const more = h('button', {type: 'button', hidden: true, onclick: () => ask({append: true})}, 'Show more');
  const search = h('input', {type: 'search', 'data-filter': true, placeholder: 'Text in prompt or response',
    'aria-label': 'Text in prompt or response', value: chosen.q});
  const where = h('input', {type: 'search', placeholder: 'reward<=0 and length>200', spellcheck: 'false',
    'aria-label': 'Condition', value: chosen.where});
  const sort = h('select', {'aria-label': 'Order'}, sorts.map(([value, name]) =>
    h('option', {value, selected: value === chosen.sort}, name)));
  const buttons = h('div', {class: 'presets', role: 'group', 'aria-label': 'Common choices'});

  function remember() {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(chosen)) if (value) query.set(name, value);
    page.remember(query);
  }
  const same = (preset) => (preset.sort ?? '') === chosen.sort && (preset.where ?? '') === chosen.where;
  function drawChoices() {
    fill(buttons, presets.map(([name, preset]) => h('button', {type: 'button', class: 'chip',
      'aria-pressed': String(same(preset)), 'data-preset': name}, name)),
    chosen.group ? h('button', {type: 'button', class: 'chip', 'aria-pressed': 'true', 'data-preset': 'group'},
        `Group ${chosen.group} ✕`) : null);
    const to = (n, name, sign) => n >= 1 && n <= last
      ? h('button', {type: 'button', 'data-step': String(n), [`data-${name}`]: true}, sign)
      : h('span', {class: 'button off'}, sign);
    fill(title, current > 0 ? `Samples of step ${count(current)}` : 'Samples');
    fill(steps, to(current - 1, 'previous', '‹ Previous'), to(current + 1, 'next', 'Next ›'),
        chosen.step && current < last ? h('button', {type: 'button', 'data-step': ''}, 'Newest step') : null,
        current > 0 ? link(page.address('step', current), 'About the step') : null);
  }

  async function ask({append = false} = {}) {
    const mine = ++asking;
    const condition = [chosen.where, chosen.group ? `group=${chosen.group}` : ''].filter(Boolean).join(' and ');
    try {
      const answer = await page.ofRun('/samples', {step: append ? current : chosen.step, where: condition, q: chosen.q,
        sort: chosen.sort, limit: 50, cursor: append ? next : ''});
      if (mine !== asking) return;
      rows = append ? [...rows, ...answer.samples] : answer.samples;
      kinds = new Map((answer.groups ?? []).map((group) => [group.group, group.kind]));
      next = answer.next_cursor;
      current = toNumber(answer.step);
      problem.hidden = true;
      made.update(rows);
      more.hidden = !next;
      fill(summary, current === 0 ? 'No step is finished yet. Samples appear here with the first.'
        : `${count(rows.length)} of ${count(answer.total)} samples are shown.` +
        (chosen.step ? '' : ' Without a chosen step these are the newest, and they change with each step.'));
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (error.status !== 400 && error.status !== 404) throw error;
      problem.hidden = false;
      fill(problem, error.message);
    }
    drawChoices();
  }
  const choose = (change) => {
    Object.assign(chosen, change);
    [search.value, where.value, sort.value] = [chosen.q, chosen.where, chosen.sort];
    remember();
    return ask();
  };
  buttons.addEventListener('click', (event) => {
    const name = event.target.closest('button')?.dataset.preset;
    if (name === 'group') choose({group: ''});
    else if (name) choose({sort: '', where: '', ...presets.find(([one]) => one === name)[1]});
  });
  steps.addEventListener('click', (event) => {
    const step = event.target.closest('button')?.dataset.step;
    if (step !== undefined) choose({step});
  });
  search.addEventListener('input', debounce(250, () => choose({q: search.value})));
  where.addEventListener('input', debounce(500, () => choose({where: where.value.trim()})));
  sort.addEventListener('change', () => choose({sort: sort.value}));

  await ask();
  page.root.append(h('div', {class: 'title'}, title, steps),
      h('div', {class: 'filters'}, h('label', null, h('span', null, 'Text'), search),
          h('label', null, h('span', null, 'Condition'), where), h('label', null, h('span', null, 'Order'), sort)),
      buttons, problem, summary, made.element, more,
      h('details', {class: 'note'}, h('summary', null, 'What a condition can say'), h('p', null,
          'Comparisons with “and” between them, such as “reward<=0 and length>200 and end=length”. ' +
          'They may name reward, advantage, length, prompt_length, min_log_prob, repetition, version, group, index, ' +
          'end (stop, length, aborted, cut) and kind of the group (mixed, all_right, all_wrong, all_equal).')));
  return {refresh: async (run) => {
    const newest = toNumber(run.status.made_step) || toNumber(run.status.step);
    if (newest === last && current > 0) return;
    last = newest;
    if (chosen.step) drawChoices();
    else await ask();
  }};
}
