// Numbers, sizes and times as text.

const scaled = (value, units, step) => {
  let unit = 0;
  while (value >= step * 0.9995 && unit < units.length - 1) { value /= step; unit++; }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits).replace(".0", "")} ${units[unit]}`;
};

/** `1.2 MB`, as `millrace ctl` has it: decimal. */
export const size = (bytes) => (bytes === undefined || bytes === null ? '' : scaled(bytes, ['B', 'kB', 'MB', 'GB', 'TB', 'PB'], 1000));

/** `1.2 MB/s` */
export const rate = (bytes) => (bytes === undefined || bytes === null ? '' : `${size(bytes)}/s`);

/** `12,345` */
export const count = (value) => (value ?? 0).toLocaleString('en');

/** `5 s`, `3 min`, `2 h 10 min`, `4 d 2 h` */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return '';
  const whole = Math.floor(seconds);
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  const pair = (large, largeUnit, small, smallUnit) => `${large} ${largeUnit}${small ? ` ${small} ${smallUnit}` : ''}`;
  if (whole < 60) return `${whole} s`;
  if (minutes < 60) return `${minutes} min`;
  if (hours < 24) return pair(hours, 'h', minutes % 60, 'min');
  return pair(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

/** `2026-11-28 21:14:03`, in the time zone of the browser. */
export function moment(time) {
  const date = new Date(typeof time === 'number' ? time * 1000 : time);
  if (Number.isNaN(date.getTime())) return String(time ?? '');
  return date.toLocaleString('sv-SE');
}

/** `21:14:03` */
export const clock = (time) => moment(time).slice(-8);
