// Every run under the folders that the program was given.
import {fill, h, progress, stateBadge, svg, table} from '/static/dom.js';
import {count, isLive, missing, number, time, toNumber, withInterval} from '/static/format.js';
import {runAddress} from '/static/app.js';

// The newest rewards as a small curve; a missing number is a gap.
function spark(rewards) {
  const known = rewards.filter((value) => value !== null);
  if (known.length < 2) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const [width, height] = [96, 22];
  const x = (i) => 2 + i * (width - 4) / Math.max(1, rewards.length - 1);
  const y = (value) => high === low ? height / 2 : height - 3 - (value - low) / (high - low) * (height - 6);
  let path = '';
  rewards.forEach((value, i) => {
    if (value === null) return;
    const begins = i === 0 || rewards[i - 1] === null;
    path += `${begins ? 'M' : 'L'}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return svg('svg', {class: 'spark', viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': `Rewards of the newest ${known.length} steps: from ${number(low, 3)} to ` +
      `${number(high, 3)}, the last ${number(known.at(-1), 3)}`},
  svg('path', {d: path, fill: 'none', stroke: 'currentColor', 'stroke-width': '1.5'}));
}

const columns = [
  {title: 'Run', wide: true, cell: (run) => [
    h('a', {class: 'strong', href: runAddress(run.id)}, run.id),
    h('span', {class: 'path'}, run.run_dir),
    run.unreadable ? h('span', {class: 'bad-text'}, `✕ ${run.unreadable}`) : null]},
  {title: 'State', cell: (run) => stateBadge(run.status?.state)},
  {title: 'Steps', number: true, cell: (run) => {
    const [step, total] = [toNumber(run.status?.step), toNumber(run.status?.total_steps)];
    if (!(total > 0)) return missing;
    return [h('span', null, `${count(step)} / ${count(total)}`), progress(step, total, 'Finished steps')];
  }},
  {title: 'Reward', number: true, cell: (run) => h('span', {class: 'with-spark'},
      spark(run.rewards ?? []), h('span', null, number(run.reward, 3)))},
  {title: 'Held-out reward', number: true, cell: (run) =>
    run.held_out === null || run.held_out === undefined ? missing
      : withInterval(run.held_out, run.held_out_interval)},
  {title: 'Model', cell: (run) => h('span', {class: 'model'}, (run.model ?? '').split('/').at(-1) || missing)},
  {title: 'Algorithm', cell: (run) => run.algorithm || missing},
  {title: 'Started', cell: (run) => h('time', {datetime: run.started_at || null}, time(run.started_at))},
];

export async function show(page) {
  let runs = [];
  const filter = h('input', {type: 'search', 'data-filter': true, placeholder: 'Filter by name, state, model …',
    'aria-label': 'Filter of runs', value: page.query.get('q') ?? '',
    oninput: () => {
      page.remember(new URLSearchParams(filter.value ? {q: filter.value} : {}));
      draw();
    }});
  const summary = h('p', {class: 'note'});
  const made = table({caption: 'Runs', columns, key: (run) => run.id,
    empty: 'No run matches. A run appears here when its directory is below a folder that the program was given.'});
  function draw() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => [run.id, run.run_dir, run.status?.state, run.model, run.algorithm].join(' ').toLowerCase();
    made.update(runs.filter((run) => words.every((word) => text(run).includes(word))));
    const live = runs.filter((run) => isLive(run.status?.state)).length;
    fill(summary, `${count(runs.length)} ${runs.length === 1 ? 'run' : 'runs'}, ${count(live)} of them live. ` +
      'Held-out rewards come with their 95 % interval.');
  }
  async function refresh() {
    ({runs} = await page.get('/runs'));
    draw();
    return runs.some((run) => isLive(run.status?.state));
  }
  const live = await refresh();
  page.root.append(h('div', {class: 'title'}, h('h1', null, 'Runs'), filter), summary, made.element);
  return {refresh, live};
}
