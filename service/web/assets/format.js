// Quantities for people. Unknown is a dash, never a zero.

const DASH = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(Number(value));

export function number(value, digits = 3) {
  if (!known(value)) return DASH;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return Number(value).toExponential(2);
  return Number(value).toLocaleString("en-GB", { maximumSignificantDigits: Math.max(digits, size >= 1000 ? 7 : digits) });
}

export function duration(seconds) {
  if (!known(seconds)) return DASH;
  const s = Number(seconds);
  if (s < 1) return `${number(s * 1000)} ms`;
  if (s < 60) return `${number(s)} s`;
  const [d, hh, m, sec] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60, Math.floor(s) % 60];
  if (d) return `${d}d ${hh}h`;
  return hh ? `${hh}h ${m}m` : `${m}m ${sec}s`;
}

export const bandwidth = (bps) => scaled(bps, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
export const bytes = (size) => scaled(size, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]);
export const flops = (rate) => scaled(rate, 1000, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"]);

export function usd(amount) {
  if (!known(amount)) return DASH;
  const size = Math.abs(amount);
  const sign = amount < 0 ? "−" : "";
  if (size === 0) return "$0.00";
  if (size >= 0.01) return `${sign}$${size.toLocaleString("en-GB", { minimumFractionDigits: 2, maximumFractionDigits: size < 1 ? 4 : 2 })}`;
  return `${sign}$${size.toFixed(Math.min(1 - Math.floor(Math.log10(size)), 12))}`;
}

export const energy = (kwh) => (known(kwh) ? (Math.abs(kwh) < 0.1 ? `${number(kwh * 1000)} Wh` : `${number(kwh)} kWh`) : DASH);
export const price = (value) => (known(value) ? `$${Number(value).toFixed(4)}` : DASH);
export const latency = (seconds) => (known(seconds) ? `${number(seconds * 1000)} ms` : DASH);
export const clock = (epoch) => (known(epoch) ? new Date(epoch * 1000).toLocaleTimeString("en-GB") : DASH);
export const moment = (epoch) => (known(epoch)
  ? new Date(epoch * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" })
  : DASH);
export const shortId = (id) => (String(id).length > 16 ? `${String(id).slice(0, 4)}…${String(id).slice(-6)}` : String(id));

function scaled(value, step, units) {
  if (!known(value)) return DASH;
  let [amount, index] = [Number(value), 0];
  while (Math.abs(amount) >= step && index < units.length - 1) { amount /= step; index += 1; }
  return `${number(amount)} ${units[index]}`;
}
