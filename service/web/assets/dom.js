// Elements from values. Text only ever becomes a text node, so nothing that a user or a worker wrote is markup.

const SVG = "http://www.w3.org/2000/svg";

// h("a", {class: "x", href: "#/"}, "text", child, [more]); null and false children are left out.
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

// A table: columns are [title, class], rows are lists of cells; `go` gives a row's address.
export function table(columns, rows, { empty = "Nothing here.", go = null } = {}) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = h("tr", null, columns.map(([title, kind]) => h("th", { class: kind, scope: "col" }, title)));
  const body = rows.map((row) => {
    const address = go?.(row);
    const cells = row.cells.map((cell, index) => h("td", { class: columns[index][1] }, cell));
    return h("tr", { class: address ? "go" : null, "data-go": address }, cells);
  });
  return h("div", { class: "scroll" }, h("table", null, h("thead", null, head), h("tbody", null, body)));
}

export function panel(title, aside, ...children) {
  return h("section", { class: "panel", "aria-label": title },
    h("header", null, h("h2", null, title), aside ? h("span", { class: "aside" }, aside) : null), children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}
