// Before the first paint, so that nothing flashes. A choice is remembered; without one the system's counts.
(() => {
  const KEY = "semel.theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem(KEY);
  const apply = () => {
    const theme = chosen() ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    dispatchEvent(new CustomEvent("semel:theme"));
  };
  system.addEventListener("change", apply);
  globalThis.semelTheme = {
    current: () => document.documentElement.dataset.theme,
    toggle() {
      localStorage.setItem(KEY, this.current() === "dark" ? "light" : "dark");
      apply();
    },
  };
  apply();
})();
