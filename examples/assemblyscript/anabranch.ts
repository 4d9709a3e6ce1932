// The memory layout of a batch: docs/reference/wasm-abi.md.

/** A column in memory. `values`, `offsets` and `validity` are addresses. */
@unmanaged
export class Column {
  values: u32;
  offsets: u32;
  validity: u32;
  size: u32;

  /** The value of a row, of a type of fixed width. */
  @inline
  get<T>(row: u32): T {
    return load<T>(this.values + row * sizeof<T>());
  }

  @inline
  set<T>(row: u32, value: T): void {
    store<T>(this.values + row * sizeof<T>(), value);
  }

  /** Where the text of a row begins, counted in bytes from `values`; it ends where that of the next row begins. */
  @inline
  offset(row: u32): u32 {
    return load<u32>(this.offsets + (row << 2));
  }

  @inline
  setOffset(row: u32, bytes: u32): void {
    store<u32>(this.offsets + (row << 2), bytes);
  }

  isNull(row: u32): bool {
    return this.validity != 0 && !(load<u8>(this.validity + (row >> 3)) & (<u8>1 << <u8>(row & 7)));
  }

  /** Make a row of the result null. */
  setNull(row: u32): void {
    const at = this.validity + (row >> 3);
    store<u8>(at, load<u8>(at) & ~(<u8>1 << <u8>(row & 7)));
  }
}

@unmanaged
export class Batch {
  rows: u32;
  columns: u32;

  get result(): Column {
    return changetype<Column>(changetype<usize>(this) + 8);
  }

  argument(number: u32): Column {
    return changetype<Column>(changetype<usize>(this) + 24 + number * 16);
  }

  /** A column of the table that a function returns. */
  column(number: u32): Column {
    return changetype<Column>(this.result.values + number * 16);
  }

  /** How many rows that table has. */
  setRows(rows: u32): void {
    this.result.size = rows;
  }
}

export function alloc(bytes: u32): usize {
  return heap.alloc(bytes);
}

export function free(address: usize, bytes: u32): void {
  heap.free(address);
}

/** The address of an ASCII message with which a function refuses its input. */
export function refusal(message: string): usize {
  const at = heap.alloc(message.length + 1);
  for (let i = 0; i < message.length; i++) store<u8>(at + i, <u8>message.charCodeAt(i));
  store<u8>(at + message.length, 0);
  return at;
}
