// As much of Markdown as runbooks use: headings, lists, tables, code, links, emphasis. It builds elements, never HTML from text.
import { h } from "./dom.js";

export function markdown(text) {
  const blocks = [], lines = text.split("\n");
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    if (!line.trim()) { at += 1; continue; }
    if (line.startsWith("```")) {
      const end = lines.findIndex((each, index) => index > at && each.startsWith("```"));
      const last = end < 0 ? lines.length : end;
      blocks.push(h("pre", {}, lines.slice(at + 1, last).join("\n")));
      at = last + 1;
    } else if (/^#+ /.test(line)) {
      blocks.push(h(line.startsWith("# ") ? "h3" : "h4", {}, line.replace(/^#+ /, "")));
      at += 1;
    } else if (line.startsWith("|")) {
      const rows = [];
      for (; at < lines.length && lines[at].startsWith("|"); at += 1) rows.push(lines[at].split("|").slice(1, -1).map((cell) => cell.trim()));
      const [head, , ...body] = rows;
      blocks.push(h("table", {}, h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, inline(cell))))),
        h("tbody", {}, body.map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell))))))));
    } else if (/^(- |\d+\. )/.test(line)) {
      const items = [];
      for (; at < lines.length && lines[at].trim() && !lines[at].startsWith("#"); at += 1) {
        if (/^(- |\d+\. )/.test(lines[at])) items.push(lines[at].replace(/^(- |\d+\. )/, ""));
        else items[items.length - 1] += ` ${lines[at].trim()}`;
      }
      blocks.push(h(line.startsWith("- ") ? "ul" : "ol", {}, items.map((item) => h("li", {}, inline(item)))));
    } else {
      const part = [];
      for (; at < lines.length && lines[at].trim() && !/^(#|- |```|\||\d+\. )/.test(lines[at]); at += 1) part.push(lines[at].trim());
      blocks.push(h("p", {}, inline(part.join(" "))));
    }
  }
  return blocks;
}

export function inline(text) {
  return text.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\)|\*\*[^*]+\*\*)/).filter(Boolean).map((part) => {
    if (part.startsWith("`")) return h("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return h("strong", {}, part.slice(2, -2));
    const link = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part);
    if (!link) return part;
    const runbook = /^([a-z_]+)\.md/.exec(link[2]);
    return runbook ? h("a", { href: `#/health/${runbook[1]}` }, link[1].replaceAll("`", "")) : link[1].replaceAll("`", "");
  });
}
