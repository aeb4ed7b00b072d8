// Which host a process runs on.
#pragma once

#include <compare>
#include <string>

namespace tandem {

// The boot id tells kernels apart. It does not suffice: containers and network namespaces of one
// kernel, and simulated hosts of a test, have one boot id but neither sockets, process numbers nor
// memory in common. The node's name alone does not suffice either, as two machines may have one.
struct HostId {
  std::string boot_id;  // of the kernel; empty: unknown
  std::string node;     // the name in the cluster: --node, SLURMD_NODENAME or the host's name

  auto operator<=>(const HostId&) const = default;

  // "a (boot 1f2e3d4c)": two hosts may have one name.
  std::string Text() const;
  // Equal for one host alone, for those who compare texts.
  std::string Key() const { return boot_id + "/" + node; }
};

// Whether processes there share memory, Unix sockets and process numbers. Two unknown hosts are not
// one.
inline bool SameHost(const HostId& a, const HostId& b) { return !a.boot_id.empty() && a == b; }

// Whether `name` can be a node's: 1 to 253 letters, digits, dots, hyphens and underscores.
bool IsNodeName(const std::string& name);

}  // namespace tandem
