"use strict";
/* Reads what columns.py wrote. */
const Columns = (() => {
  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  function decode(column, count) {
    if ("c" in column) return Array(count).fill(column.c);
    if ("d" in column) {
      const scale = 10 ** column.p;
      let total = 0;
      return column.d.map((step) => (total += step) / scale);
    }
    if ("k" in column) return decode(column.i, count).map((index) => column.k[index]);
    if ("o" in column) {
      const parts = Object.entries(column.o).map(([name, part]) => [name, decode(part, count)]);
      return Array.from({ length: count }, (_, tick) =>
        Object.fromEntries(parts.map(([name, values]) => [name, values[tick]])));
    }
    if ("a" in column) {
      const places = column.a.map((part) => decode(part, count));
      return Array.from({ length: count }, (_, tick) => places.map((values) => values[tick]));
    }
    if ("l" in column) {
      const lengths = decode(column.l, count);
      const items = decode(column.f, lengths.reduce((sum, length) => sum + length, 0));
      let start = 0;
      return lengths.map((length) => items.slice(start, (start += length)));
    }
    if ("g" in column) return images(column, count);
    return column.v;
  }

  function images(column, count) {
    const [height, width] = column.g;
    const steps = bytesOf(column.b);
    const size = height * width;
    for (let at = size; at < count * size; at++) steps[at] += steps[at - size];
    return Array.from({ length: count }, (_, tick) =>
      Array.from({ length: height }, (_, row) =>
        steps.subarray(tick * size + row * width, tick * size + (row + 1) * width)));
  }

  async function unzip(text) {
    if (typeof DecompressionStream === "undefined") throw new Error("too old to unpack the replays");
    const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  async function unpack(packed) {
    const items = packed.plain || (await unzip(packed.gzip));
    return items.map((item) => ({ ...item, frames: decode(item.frames, item.count) }));
  }

  return { decode, unpack };
})();
if (typeof module !== "undefined") module.exports = Columns;
