// A table of any number of rows, of which only those in sight are in the document.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

const MARGIN = 8;

/** Returns which rows an element that scrolls has in sight, and follows it. */
function useSight(scroller, height) {
  const [sight, setSight] = useState({ first: 0, count: 40 });
  useLayoutEffect(() => {
    const look = () => {
      const first = Math.max(0, Math.floor(scroller.current.scrollTop / height) - MARGIN);
      const count = Math.ceil(scroller.current.clientHeight / height) + 2 * MARGIN;
      setSight((before) => (before.first === first && before.count === count ? before : { first, count }));
    };
    const resize = new ResizeObserver(look);
    resize.observe(scroller.current);
    scroller.current.addEventListener('scroll', look, { passive: true });
    look();
    return () => { resize.disconnect(); scroller.current?.removeEventListener('scroll', look); };
  }, [height]);
  return sight;
}

/** Whether the page is too narrow for a row to be one line. */
export function useNarrow() {
  const query = matchMedia('(max-width: 759px)');
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const change = () => setNarrow(query.matches);
    query.addEventListener('change', change);
    return () => query.removeEventListener('change', change);
  }, []);
  return isNarrow;
}

/**
 * The table. `rows` are those from row `from` on, of `total`; `onSight(first, count)` tells which are wanted.
 * A column has `name`, `cell(row)`, and where it sorts `sort`, the name of the order.
 */
export function VirtualTable({ label, kind, columns, rows, from, total, height, idOf, sort, onSort, onSight, onOpen, hint }) {
  const scroller = useRef();
  const { first, count } = useSight(scroller, height);
  const [current, setCurrent] = useState(0);
  const wanted = useRef();
  const isInside = useRef(false);
  useEffect(() => onSight(first, count), [first, count]);
  const focusRow = (index) => {
    const row = Math.max(0, Math.min(total - 1, index));
    setCurrent(row);
    const element = scroller.current;
    const [top, bottom] = [row * height, (row + 1) * height];
    // The head of the table covers the first line.
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight - 34) element.scrollTop = bottom - element.clientHeight + 34;
    // Until the row is in the document, the table has the focus, so that no key is lost.
    wanted.current = row;
    element.focus({ preventScroll: true });
    focusWanted();
  };
  const focusWanted = () => {
    const element = scroller.current.querySelector(`.rows > [aria-rowindex="${wanted.current + 2}"][aria-busy=false]`);
    if (!element || document.activeElement !== scroller.current) return;
    wanted.current = undefined;
    element.focus({ preventScroll: true });
  };
  // A row that has the focus may go out of sight, as others are faster.
  useLayoutEffect(() => {
    if (isInside.current && document.activeElement === document.body) scroller.current.focus({ preventScroll: true });
    if (wanted.current !== undefined) focusWanted();
  });
  // Rows move while they are looked at: the one with the focus knows where it is now.
  const onKeyDown = (event) => {
    const isTable = event.target === scroller.current;
    if (!isTable && !event.target.matches('.rows > [role=row]')) return;
    const at = isTable ? current : Number(event.target.getAttribute('aria-rowindex')) - 2;
    const page = Math.floor(scroller.current.clientHeight / height) - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -total, End: total };
    const row = rows[at - from];
    if (event.key in steps) focusRow(at + steps[event.key]);
    else if ((event.key === 'Enter' || event.key === ' ') && row) onOpen(row);
    else return;
    event.preventDefault();
  };
  const shown = [];
  for (let index = first; index < Math.min(total, first + count); index++) {
    const row = rows[index - from];
    shown.push(
      <div role="row" class="row" key={row ? idOf(row) : `empty-${index}`} aria-rowindex={index + 2} aria-busy={!row}
        style={{ transform: `translateY(${index * height}px)` }} tabindex={index === Math.max(first, Math.min(current, first + count - 1)) ? 0 : -1}
        onFocus={() => setCurrent(index)} onClick={() => row && onOpen(row)}>
        {columns.map(({ is, cell }) => <div role="gridcell" class={is}>{row ? cell(row) : ''}</div>)}
      </div>);
  }
  return (
    <div class={`virtual ${kind}`} ref={scroller} tabindex="-1" role="grid" aria-label={label} aria-rowcount={total + 1} aria-description={hint}
      onKeyDown={onKeyDown} onFocusCapture={() => { isInside.current = true; }}
      onBlurCapture={(event) => { if (event.relatedTarget) isInside.current = scroller.current.contains(event.relatedTarget); }}>
      <div role="row" class="row heads" aria-rowindex="1">
        {columns.map(({ is, name, sort: order }) => (
          <div role="columnheader" class={is} aria-sort={order && sort.replace('-', '') === order.replace('-', '')
            ? (sort.startsWith('-') ? 'descending' : 'ascending') : undefined}>
            {order ? <button type="button" onClick={() => onSort(sort === order ? flipped(order) : order)}>{name}</button> : name}
          </div>))}
      </div>
      <div class="rows" role="rowgroup" style={{ height: `${total * height}px` }}>{shown}</div>
    </div>
  );
}

/** The other direction of an order: `rate` and `-rate`. */
const flipped = (order) => (order.startsWith('-') ? order.slice(1) : `-${order}`);
