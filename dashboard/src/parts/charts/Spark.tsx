/** A chart in a row of a table: bars without axes, and a sentence for screen readers. */

const WIDTH = 72;
const HEIGHT = 20;

export function Spark({ values, label }: { values: readonly number[]; label: string }) {
  const most = Math.max(1, ...values);
  const wide = WIDTH / Math.max(1, values.length);
  const bars = values.map((value, nth) => {
    const height = value > 0 ? Math.max(2, (value / most) * HEIGHT) : 1;
    return `M${(nth * wide).toFixed(1)} ${HEIGHT}v${(-height).toFixed(1)}h${Math.max(1, wide - 1).toFixed(1)}V${HEIGHT}z`;
  });
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} role="img" aria-label={label}>
      <path d={bars.join("")} />
    </svg>
  );
}
