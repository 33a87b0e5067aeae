// The safetensors format by hand, so that tests can write what no proper writer would.

export interface RawTensor {
  dtype: string;
  shape: number[];
  data: Uint8Array;
}

export function parseSafetensors(bytes: Uint8Array): Map<string, RawTensor> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const data = bytes.subarray(8 + length);
  return new Map(
    Object.entries(header)
      .filter(([key]) => key !== "__metadata__")
      .map(([key, { dtype, shape, data_offsets: offsets }]) => [
        key,
        { dtype, shape, data: data.slice(...offsets) },
      ]),
  );
}

export function renderSafetensors(tensors: ReadonlyMap<string, RawTensor>): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let end = 0;
  for (const [key, { dtype, shape, data }] of tensors) {
    header[key] = { dtype, shape, data_offsets: [end, (end += data.length)] };
  }
  let json = JSON.stringify(header);
  json = json.padEnd(Math.ceil(json.length / 8) * 8);
  const bytes = new Uint8Array(8 + json.length + end);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
  bytes.set(new TextEncoder().encode(json), 8);
  let at = 8 + json.length;
  for (const { data } of tensors.values()) {
    bytes.set(data, at);
    at += data.length;
  }
  return bytes;
}
