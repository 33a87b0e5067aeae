const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

/**
 * Local time as Python's `datetime.strftime` writes it in the C locale, whatever the language of this machine: chat
 * templates put dates into prompts. Directives that are not known stay as they are.
 */
export function strftime(date: Date, format: string): string {
  const padded = (value: number, length = 2) => String(value).padStart(length, "0");
  const [year, month, day] = [date.getFullYear(), date.getMonth(), date.getDate()];
  const dayOfYear = Math.round((Date.UTC(year, month, day) - Date.UTC(year, 0, 0)) / 86_400_000);
  const hour = date.getHours();
  const parts: Readonly<Record<string, string>> = {
    Y: String(year),
    y: padded(year % 100),
    m: padded(month + 1),
    B: MONTHS[month]!,
    b: MONTHS[month]!.slice(0, 3),
    d: padded(day),
    e: String(day).padStart(2, " "),
    j: padded(dayOfYear, 3),
    A: DAYS[date.getDay()]!,
    a: DAYS[date.getDay()]!.slice(0, 3),
    H: padded(hour),
    I: padded(hour % 12 || 12),
    p: hour < 12 ? "AM" : "PM",
    M: padded(date.getMinutes()),
    S: padded(date.getSeconds()),
    "%": "%",
  };
  return format.replace(/%([YymBbdejAaHIpMS%])/g, (_, directive: string) => parts[directive]!);
}
