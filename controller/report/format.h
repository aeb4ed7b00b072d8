// Formats numbers and tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

std::string FormatBytes(int64_t bytes);     // "1.25 GiB", "312 MiB", "0"
std::string FormatSeconds(double seconds);  // "850 ms", "4.21 s", "12.3 s", "3m12s", "2h05m"
std::string FormatShare(double value);      // three significant digits: "0.412"
// One character per value, scaled to the range of the values; empty for no values.
std::string Sparkline(const std::vector<double>& values);

// A table with a header row; the first column is left-aligned, the others right-aligned. Each cell
// is one line, without anything that would steer a terminal (OneLine).
std::string FormatTable(std::vector<std::vector<std::string>> rows);

// Escapes &, <, >, " and ' as entities; control characters except newline and tab become U+FFFD.
std::string EscapeHtml(const std::string& text);

}  // namespace tandem
