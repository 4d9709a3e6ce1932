import { Batch, refusal } from "./anabranch";

export { alloc, free } from "./anabranch";

/** dew_point(celsius double, humidity double) -> double: by Magnus' formula; the humidity is in percent. */
export function dew_point(batch: Batch): usize {
  const celsius = batch.argument(0), humidity = batch.argument(1), result = batch.result;
  for (let row: u32 = 0; row < batch.rows; row++) {
    const t = celsius.get<f64>(row), percent = humidity.get<f64>(row);
    if (percent <= 0 || percent > 100) return refusal("the humidity is above 0 and at most 100 percent");
    const gamma = Math.log(percent / 100) + (17.62 * t) / (243.12 + t);
    result.set<f64>(row, (243.12 * gamma) / (17.62 - gamma));
  }
  return 0;
}

let text: usize = 0, room: u32 = 0; // the result's text, used again for each batch

/** station(name string) -> string: small letters, and '-' for spaces and underscores. */
export function station(batch: Batch): usize {
  const name = batch.argument(0), result = batch.result;
  if (name.size > room) {
    if (room) heap.free(text);
    room = name.size;
    text = heap.alloc(room);
  }
  for (let i: u32 = 0; i < name.size; i++) {
    let byte = load<u8>(name.values + i);
    if (byte >= 65 && byte <= 90) byte += 32;
    else if (byte == 32 || byte == 95) byte = 45;
    store<u8>(text + i, byte);
  }
  for (let row: u32 = 0; row <= batch.rows; row++) result.setOffset(row, name.offset(row));
  result.values = <u32>text;
  return 0;
}

let states: usize = 0; // of each group: the sum of the logarithms, and how many there are

/** aggregate geometric_mean(x double) -> double */
export function geometric_mean_begin(groups: u32): usize {
  if (states) heap.free(states);
  states = heap.alloc(groups * 16);
  memory.fill(states, 0, groups * 16);
  return 0;
}

export function geometric_mean_update(batch: Batch): usize {
  const x = batch.argument(0), group = batch.argument(1);
  for (let row: u32 = 0; row < batch.rows; row++) {
    const state = states + group.get<u32>(row) * 16;
    store<f64>(state, load<f64>(state) + Math.log(x.get<f64>(row)));
    store<f64>(state, load<f64>(state, 8) + 1, 8);
  }
  return 0;
}

export function geometric_mean_finish(batch: Batch): usize {
  for (let group: u32 = 0; group < batch.rows; group++) {
    const state = states + group * 16, count = load<f64>(state, 8);
    if (count) batch.result.set<f64>(group, Math.exp(load<f64>(state) / count));
    else batch.result.setNull(group);
  }
  return 0;
}

let names: usize = 0, ends: usize = 0, degrees: usize = 0; // the rows that the last call returned
let coldest: f64 = Infinity, frosts: u32 = 0; // of the micro-batch

/** frost(name string, celsius double) -> table (name string, celsius double): the rows below 0, then the coldest of them. */
export function frost(batch: Batch): usize {
  const name = batch.argument(0), celsius = batch.argument(1);
  reserve(name.size, batch.rows);
  let rows: u32 = 0, end: u32 = 0;
  for (let row: u32 = 0; row < batch.rows; row++) {
    const t = celsius.get<f64>(row);
    if (celsius.isNull(row) || t >= 0) continue;
    const from = name.offset(row), bytes = name.offset(row + 1) - from;
    memory.copy(names + end, name.values + from, bytes);
    end += bytes;
    store<f64>(degrees + (rows << 3), t);
    store<u32>(ends + (++rows << 2), end);
    coldest = Math.min(coldest, t);
  }
  frosts += rows;
  return returned(batch, rows);
}

export function frost_end(batch: Batch): usize {
  if (!frosts) return 0;
  reserve(7, 1);
  String.UTF8.encodeUnsafe(changetype<usize>("coldest"), 7, names);
  store<f64>(degrees, coldest);
  store<u32>(ends + 4, 7);
  return returned(batch, 1);
}

function reserve(bytes: u32, rows: u32): void {
  if (ends) {
    heap.free(names);
    heap.free(ends);
    heap.free(degrees);
  }
  names = heap.alloc(max(bytes, 1));
  ends = heap.alloc((rows + 1) << 2);
  degrees = heap.alloc(rows << 3);
  store<u32>(ends, 0);
}

function returned(batch: Batch, rows: u32): usize {
  batch.column(0).values = <u32>names;
  batch.column(0).offsets = <u32>ends;
  batch.column(1).values = <u32>degrees;
  batch.setRows(rows);
  return 0;
}
