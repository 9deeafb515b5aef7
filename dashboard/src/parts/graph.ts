/**
 * Places the nodes of a graph without cycles in layers, from left to right.
 *
 * The layer of a node is the longest path to it; the order in a layer follows the mean place of the
 * neighbours, a few times in both directions, so that few edges cross.
 */

export interface Edge {
  parent: string;
  child: string;
}

export interface Spot {
  id: string;
  layer: number;
  /** The place in its layer, from 0. */
  order: number;
  x: number;
  y: number;
}

export interface Layout {
  spots: Map<string, Spot>;
  edges: Edge[];
  width: number;
  height: number;
}

export interface Sizes {
  width: number;
  height: number;
  /** Between two layers, and between two nodes of one. */
  across: number;
  down: number;
}

const SWEEPS = 4;

export function layout(ids: readonly string[], edges: readonly Edge[], sizes: Sizes): Layout {
  const known = new Set(ids);
  const kept = edges.filter(({ parent, child }) => known.has(parent) && known.has(child) && parent !== child);
  const layers = inLayers(ids, kept);
  untangle(layers, kept);

  const tallest = Math.max(0, ...layers.map((layer) => layer.length));
  const step = sizes.height + sizes.down;
  const height = Math.max(0, tallest * step - sizes.down);
  const spots = new Map<string, Spot>();
  for (const [layer, members] of layers.entries()) {
    const free = height - (members.length * step - sizes.down);
    for (const [order, id] of members.entries()) {
      const x = layer * (sizes.width + sizes.across);
      spots.set(id, { id, layer, order, x, y: free / 2 + order * step });
    }
  }
  const width = Math.max(0, layers.length * (sizes.width + sizes.across) - sizes.across);
  return { spots, edges: kept, width, height };
}

/** The nodes by the longest path to them. Nodes of a cycle, which no flow has, come last. */
function inLayers(ids: readonly string[], edges: readonly Edge[]): string[][] {
  const children = byEnd(edges, "parent", "child");
  const waits = new Map(ids.map((id) => [id, 0]));
  for (const { child } of edges) waits.set(child, (waits.get(child) ?? 0) + 1);
  const depth = new Map<string, number>();
  const line = ids.filter((id) => !waits.get(id));
  for (const id of line) depth.set(id, 0);
  for (let nth = 0; nth < line.length; nth += 1) {
    const id = line[nth] as string;
    const below = (depth.get(id) ?? 0) + 1;
    for (const child of children.get(id) ?? []) {
      depth.set(child, Math.max(depth.get(child) ?? 0, below));
      const left = (waits.get(child) ?? 0) - 1;
      waits.set(child, left);
      if (left === 0) line.push(child);
    }
  }
  const layers: string[][] = [];
  const reached = new Set(line);
  for (const id of ids) {
    const layer = reached.has(id) ? (depth.get(id) ?? 0) : 0;
    (layers[layer] ??= []).push(id);
  }
  return Array.from(layers, (layer) => layer ?? []);
}

/** Order each layer by the mean place of its neighbours, forth and back. */
function untangle(layers: string[][], edges: readonly Edge[]): void {
  const parents = byEnd(edges, "child", "parent");
  const children = byEnd(edges, "parent", "child");
  const place = new Map<string, number>();
  const note = (layer: string[]) => layer.forEach((id, nth) => place.set(id, (nth + 0.5) / layer.length));
  layers.forEach(note);
  const sort = (layer: string[], neighbours: Map<string, string[]>) => {
    const mean = new Map(layer.map((id) => [id, meanPlace(neighbours.get(id) ?? [], place) ?? place.get(id) ?? 0]));
    layer.sort((one, other) => (mean.get(one) ?? 0) - (mean.get(other) ?? 0)); // stable
    note(layer);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const layer of layers) sort(layer, parents);
    for (const layer of [...layers].reverse()) sort(layer, children);
  }
}

function meanPlace(ids: readonly string[], place: ReadonlyMap<string, number>): number | null {
  if (!ids.length) return null;
  return ids.reduce((sum, id) => sum + (place.get(id) ?? 0), 0) / ids.length;
}

function byEnd(edges: readonly Edge[], from: keyof Edge, to: keyof Edge): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const edge of edges) {
    const list = found.get(edge[from]);
    if (list) list.push(edge[to]);
    else found.set(edge[from], [edge[to]]);
  }
  return found;
}
