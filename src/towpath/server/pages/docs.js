/** The documentation of the API: opens what a link names, and searches. */

const here = location.href.replace(/\/api\/docs.*$/, "");
document.querySelector(".origin").textContent = here;
const menu = document.querySelector("nav details"), search = document.querySelector("[type=search]");
if (innerWidth < 800) menu.open = false;
const open = () => {
  const shown = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!shown) return;
  if (shown.tagName === "DETAILS") shown.open = true;
  shown.scrollIntoView();
};
addEventListener("hashchange", open);
menu.addEventListener("click", (event) => {
  if (!event.target.closest("a")) return;
  if (innerWidth < 800) menu.open = false;
  setTimeout(open);
});
open();
const text = new Map();
for (const each of document.querySelectorAll("main details")) text.set(each, each.textContent.toLowerCase());
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const [each, content] of text) {
    each.hidden = !words.every((word) => content.includes(word));
    if (!each.hidden) found += 1;
  }
  document.getElementById("token").hidden = words.length > 0;
  for (const link of document.querySelectorAll("nav li a")) {
    link.parentElement.hidden = document.getElementById(link.hash.slice(1)).hidden;
  }
  for (const section of document.querySelectorAll("section")) {
    const parts = [...section.querySelectorAll("details, li")];
    if (section.id !== "token") section.hidden = parts.every((part) => part.hidden);
  }
  document.querySelector("[role=status]").textContent = words.length ? `${found} found` : "";
  if (innerWidth < 800) menu.open = false;
});
