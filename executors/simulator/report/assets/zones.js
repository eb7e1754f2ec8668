// The axis in run time, in UTC or in a zone, where the run has times of day.

function offerZones(timeline, began) {
  if (began === null) return;
  wall.began = began / 1000;
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const select = element("select", { id: "zone" });
  const add = (holder, value, text) => holder.append(element("option", { value }, text));
  add(select, "", "run time");
  add(select, "UTC", "UTC");
  if (local && local !== "UTC") add(select, local, `${local} (here)`);
  const others = element("optgroup", { label: "another zone" });
  for (const zone of Intl.supportedValuesOf?.("timeZone") ?? []) if (zone !== local && zone !== "UTC") add(others, zone, zone);
  select.append(others);
  select.addEventListener("change", () => {
    wall.zone = select.value || null;
    timeline.schedule(true);
    timeline.table.render();
    timeline.offerJump();
  });
  const label = element("label", { title: "in which times the axis is" }, "times in ");
  label.append(select);
  document.querySelector("#timeline .tools .group").append(label);
}
