// A chart of the last hour. Its colours are those of the style sheet.
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { clock } from './format.js';
import { text } from './text.js';

const HEIGHT = 128;

/** Returns the options of uPlot for the width and the colours of an element. */
function options(element, series, show, onCursor) {
  const colour = (name) => getComputedStyle(element).getPropertyValue(name).trim();
  const axis = {
    stroke: colour('--quiet'), font: '11px system-ui, sans-serif', ticks: { show: false }, grid: { stroke: colour('--line'), width: 1 },
  };
  const time = (values) => values.map((value) => clock(value).slice(0, 5));
  return {
    width: element.clientWidth, height: HEIGHT, legend: { show: false }, padding: [8, 16, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 }, sync: { key: 'hour' } },
    scales: { x: { time: true }, y: { range: (_, least, most) => [0, Math.max(most, 1) * 1.1] } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 22, values: (_, splits) => time(splits) },
      { ...axis, size: 66, space: 36, values: (_, splits) => splits.map((value) => (Number.isInteger(value) || value > 10 ? show(value) : '')) },
    ],
    series: [{}, ...series.map((_, at) => ({
      stroke: colour(at === 0 ? '--accent' : '--second'), fill: at === 0 ? colour('--accent-faint') : undefined, width: 1.25,
      points: { show: false },
    }))],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx)] },
  };
}

/** A chart with a line for each of `series`, `{name, values}`. `show` formats a value. */
export function Chart({ times, series, show }) {
  const place = useRef();
  const plot = useRef();
  const [cursor, setCursor] = useState(null);
  const [look, setLook] = useState(0);
  const data = [times, ...series.map(({ values }) => values)];
  useEffect(() => {
    const element = place.current;
    const again = () => setLook((number) => number + 1);
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    resize.observe(element);
    addEventListener('millrace-theme', again);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', again);
    return () => { resize.disconnect(); removeEventListener('millrace-theme', again); dark.removeEventListener('change', again); };
  }, []);
  useEffect(() => {
    plot.current = new uPlot(options(place.current, series, show, setCursor), data, place.current);
    return () => { plot.current.destroy(); plot.current = undefined; };
  }, [look]);
  useEffect(() => { plot.current?.setData(data); }, [times]);
  const at = cursor ?? times.length - 1;
  const now = (values) => show(values[at] ?? 0);
  const peak = (values) => show(values.reduce((most, value) => Math.max(most, value), 0));
  const label = series.map(({ name, values }) => text.overview.chart(name, show(values.at(-1) ?? 0), peak(values))).join('; ');
  return (
    <section class="chart">
      <div class="legend">
        {series.map(({ name, values }, index) => (
          <div class={index === 0 ? 'first' : 'second'}><h3>{name}</h3><b>{now(values)}</b>{series.length === 1 && <span>{text.overview.peak(peak(values))}</span>}</div>))}
        <time>{cursor === null ? '' : clock(times[at])}</time>
      </div>
      <div ref={place} role="img" aria-label={label} class="plot" />
    </section>
  );
}
