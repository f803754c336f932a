// Runs before the first paint: the theme that was chosen, else the one of the system.
const chosen = localStorage.getItem("bace-theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
const apply = () => {
  document.documentElement.dataset.theme = localStorage.getItem("bace-theme") ?? (dark.matches ? "dark" : "light");
  document.dispatchEvent(new Event("theme"));
};
document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
dark.addEventListener("change", apply);
window.toggleTheme = () => {
  localStorage.setItem("bace-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  apply();
};
