/* Filters the rows of a table by the words in a field, and puts the filter into the address: ?filter=qwen3-coder */
(function () {
  "use strict";
  function start() {
    document.querySelectorAll("input[data-filters]").forEach(function (input) {
      var table = document.getElementById(input.dataset.filters);
      var said = input.parentElement.querySelector("output");
      var rows = Array.prototype.map.call(table.tBodies[0].rows, function (row) {
        return { row: row, text: row.textContent.toLowerCase() };
      });
      function filter() {
        var words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        var shown = 0;
        rows.forEach(function (each) {
          var fits = words.every(function (word) { return each.text.indexOf(word) >= 0; });
          each.row.hidden = !fits;
          if (fits) { shown += 1; }
        });
        said.textContent = words.length ? shown + " of " + rows.length : "";
        var address = new URL(location.href);
        if (words.length) { address.searchParams.set("filter", input.value); } else { address.searchParams.delete("filter"); }
        try { history.replaceState(null, "", address); } catch (refused) { /* a page from a file */ }
      }
      input.value = new URL(location.href).searchParams.get("filter") || "";
      input.addEventListener("input", filter);
      if (input.value) { filter(); }
    });
  }
  if (document.readyState === "loading") { document.addEventListener("DOMContentLoaded", start); } else { start(); }
})();
