/** A new UUIDv7: later ids sort after earlier ones. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const view = new DataView(bytes.buffer);
  const now = Date.now();
  view.setUint32(0, Math.floor(now / 0x1_0000));
  view.setUint16(4, now % 0x1_0000);
  view.setUint16(6, 0x7000 | (view.getUint16(6) & 0x0fff)); // version
  view.setUint16(8, 0x8000 | (view.getUint16(8) & 0x3fff)); // variant
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** A number that identifies a repeated reservation: above 0, and exact in JSON. */
export function newToken(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  return (high & 0x1f_ffff) * 0x1_0000_0000 + low + 1;
}
