// Elements are made one by one, never from text that is parsed, and have no style attributes: pages work under a strict
// content security policy and Trusted Types.

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svgElement(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// A text in both languages; the style sheet shows one of them.
export function bilingual(english, chinese) {
  const both = document.createDocumentFragment();
  both.append(element("span", { lang: "en" }, english), element("span", { lang: "zh" }, chinese));
  return both;
}

export function isChinese() {
  return document.getElementById("zh")?.checked ?? false;
}

export function inLanguage(english, chinese) {
  return isChinese() ? chinese : english;
}

export function isDark() {
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

// A colour of the style sheet, for canvases.
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function replaceChildren(node, ...children) {
  node.replaceChildren(...children);
  return node;
}
