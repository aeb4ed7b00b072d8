// How fast this machine copies memory, for plans of what crosses it.
#pragma once

namespace tandem {

// Bytes a second that one thread copies from one piece of memory to another, both larger than a
// core's caches: the best of some rounds, which take 0.1 s together. Needs 64 MiB meanwhile.
double MeasureCopyRate();

}  // namespace tandem
