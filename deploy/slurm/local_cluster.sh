#!/usr/bin/env bash
# A real Slurm cluster on this machine, to try runs of several nodes: one slurmctld on a head and a slurmd on
# each of node1, node2 and so on. Head and nodes have network addresses, host names, process ids and /dev/shm
# of their own (namespaces of the kernel); they share files, cores and memory. Needs root and the packages that
# `deploy/setup.sh --cluster` installs.
#   deploy/slurm/local_cluster.sh [--dir DIR] up [NODES]        starts head and nodes (3 unless told)
#   deploy/slurm/local_cluster.sh [--dir DIR] run COMMAND ...   runs a command on the head, in the folder you are in
#   deploy/slurm/local_cluster.sh [--dir DIR] on NODE COMMAND ...   the same on a node, as node2
#   deploy/slurm/local_cluster.sh [--dir DIR] status            nodes and jobs
#   deploy/slurm/local_cluster.sh [--dir DIR] crash NODE        its power fails: silence, and nothing of it is left
#   deploy/slurm/local_cluster.sh [--dir DIR] boot NODE         starts a crashed node again
#   deploy/slurm/local_cluster.sh [--dir DIR] cut NODE          its cable is out: silence, but its processes go on
#   deploy/slurm/local_cluster.sh [--dir DIR] join NODE         its cable is in again
#   deploy/slurm/local_cluster.sh [--dir DIR] down              ends all of it; logs stay in DIR
# --dir   where configuration, logs and state are (default /tmp/tandem-cluster); one folder is one cluster, and
#         several may run at once. DIR/local is each node's own disk: files there are not seen from other nodes.
# Time limits are short, so that losses are seen soon: a silent node is down after some ten seconds (Slurm's
# default: 300 and more), a killed job has 5 s (30 s), a requeued one waits 10 s (120 s). They stand in DIR/slurm.conf;
# `run scontrol reconfigure` reads it again.
# docs/guides/clusters.md has an example.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

PACKAGES=(slurm-wlm munge iproute2 procps)
PROGRAMS=(slurmctld slurmd munged ip unshare nsenter)
NETWORK=10.77.0      # seen inside the cluster alone
MOST_NODES=64        # a machine that can do more has no need of this script
UP_SECONDS=60        # in which all nodes have to be idle
STARTED_IN="$OLDPWD" # common.sh has changed into the checkout

# --- what a cluster is made of -----------------------------------------------------------------------------

# The numbers in slurm.conf that make losses quick, and what keeps two clusters of one machine apart.
write_configuration() { # NODES
  local node
  {
    printf '%s\n' ClusterName=tandem "SlurmctldHost=head($NETWORK.254)" SlurmUser=root SlurmdUser=root \
      "StateSaveLocation=$DIR/state" "SlurmdSpoolDir=$DIR/spool.%n" \
      "SlurmctldPidFile=$DIR/slurmctld.pid" "SlurmdPidFile=$DIR/slurmd.%n.pid" \
      "SlurmctldLogFile=$DIR/slurmctld.log" "SlurmdLogFile=$DIR/slurmd.%n.log" \
      "AuthInfo=socket=$DIR/munge.socket,cred_expire=10" \
      SlurmdTimeout=10 KillWait=5 CompleteWait=0 ReturnToService=2 \
      SchedulerType=sched/backfill SchedulerParameters=sched_interval=2,bf_interval=2 \
      SelectType=select/cons_tres SelectTypeParameters=CR_Core SlurmdParameters=config_overrides \
      ProctrackType=proctrack/linuxproc TaskPlugin=task/none SwitchType=switch/none MpiDefault=none \
      AccountingStorageType=accounting_storage/none JobAcctGatherType=jobacct_gather/none \
      JobCompType=jobcomp/none
    for ((node = 1; node <= $1; node++)); do
      echo "NodeName=node$node NodeAddr=$NETWORK.$node CPUs=$(nproc) RealMemory=$(($(memory_kib total) / 1024))"
    done
    echo 'PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP'
  } >"$DIR/slurm.conf"
  # No plug-in here uses control groups, but slurmd loads the one that is named.
  printf '%s\n' CgroupPlugin=cgroup/v1 CgroupAutomount=no >"$DIR/cgroup.conf"
  {
    printf '127.0.0.1 localhost\n%s.254 head\n' "$NETWORK"
    for ((node = 1; node <= $1; node++)); do echo "$NETWORK.$node node$node"; done
  } >"$DIR/hosts"
}

# The first process of a host: everything on it is in its process namespace and ends with it. It only waits
# for what lost its parent.
# shellcheck disable=SC2016  # the host's shell expands it
FIRST_PROCESS='
  set -e
  mount -t proc proc /proc
  mount -t tmpfs tmpfs /dev/shm
  mount -t tmpfs tmpfs "$1/local"
  mount --bind "$1/hosts" /etc/hosts
  hostname "$2"
  ip link set lo up
  : >"$1/local/ready"
  set +e
  while :; do sleep 1000 & wait $!; done'

# start_host NAME: makes its namespaces. DIR/NAME.host is "pid start-time" of what holds them.
start_host() {
  local pid
  (
    trap - INT TERM HUP
    exec setsid unshare --net --uts --ipc --pid --mount --fork --kill-child \
      bash -c "$FIRST_PROCESS" bash "$DIR" "$1"
  ) </dev/null >"$DIR/$1.out" 2>&1 &
  pid=$!
  disown "$pid"
  printf '%s %s\n' "$pid" "$(started_at "$pid")" >"$DIR/$1.host"
  wait_until 10 "$1 has no namespaces" is_ready "$1"
}
is_ready() { [ -e "/proc/$(first_process "$1")/root/$DIR/local/ready" ]; }

# When a process began, in the kernel's ticks: with it an id names one process for ever. Nothing for one that
# has ended and that nobody has waited for.
started_at() { sed -E 's/^.*\) //; /^Z /d' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }
# The id of what holds the namespaces of a host; fails if the host is not up.
holder() {
  local pid began
  [ -f "$DIR/$1.host" ] && read -r pid began <"$DIR/$1.host" && [ -n "$began" ] && [ "$(started_at "$pid")" = "$began" ] \
    && printf '%s' "$pid"
}
# Its first process, as this machine numbers it.
first_process() {
  local pid
  pid="$(holder "$1")" && pid="$(cat "/proc/$pid/task/$pid/children")" && [ -n "$pid" ] && printf '%s' "${pid%% *}"
}
# inside HOST COMMAND...: as if one had logged in there.
inside() {
  local pid
  pid="$(first_process "$1")" || fail "$1 is not up"
  shift
  # shellcheck disable=SC2016  # expanded inside
  nsenter --target "$pid" --net --uts --ipc --pid --mount -- env "SLURM_CONF=$DIR/slurm.conf" \
    bash -c 'cd "$1" && shift && exec "$@"' bash "$STARTED_IN" "$@"
}
on_head() { inside head "$@"; }

connect() { # NODE
  local head node
  head="$(first_process head)" node="$(first_process "$1")"
  ip link add "$1" netns "$head" type veth peer name eth0 netns "$node"
  on_head ip link set "$1" master bridge up
  inside "$1" ip addr add "$NETWORK.${1#node}/24" dev eth0
  inside "$1" ip link set eth0 up
}

start_head() {
  start_host head
  on_head ip link add bridge type bridge
  on_head ip addr add "$NETWORK.254/24" dev bridge
  on_head ip link set bridge up
  on_head munged --force --key-file="$DIR/munge.key" --socket="$DIR/munge.socket" \
    --pid-file="$DIR/munge.pid" --log-file="$DIR/munged.log" --seed-file="$DIR/munge.seed" >>"$DIR/head.out" 2>&1
  on_head slurmctld -c >>"$DIR/head.out" 2>&1
}
start_node() { # NODE
  mkdir -p "$DIR/spool.$1"
  start_host "$1"
  connect "$1"
  inside "$1" slurmd -N "$1" >>"$DIR/$1.out" 2>&1
}

# wait_until SECONDS WHAT COMMAND...: fails with WHAT when the time is over.
wait_until() {
  local end=$((SECONDS + $1)) what="$2"
  shift 2
  until "$@"; do
    ((SECONDS < end)) || return_failure "$what"
    sleep 0.1
  done
}
return_failure() {
  tail -n 5 "$DIR"/*.out "$DIR"/slurmctld.log "$DIR"/slurmd.*.log "$DIR"/munged.log >&2 2>/dev/null || true
  end_hosts
  fail "$1; the end of its logs is above, all of them are in $DIR"
}

hosts_up() {
  local file name
  for file in "$DIR"/*.host; do
    name="${file##*/}"
    if holder "${name%.host}" >/dev/null; then printf '%s\n' "${name%.host}"; fi
  done
}
# With what holds the namespaces all of their processes are killed.
end_host() {
  local pid
  pid="$(holder "$1")" || return 0
  kill -KILL "$pid" 2>/dev/null || true
  while [ -e "/proc/$pid" ] && holder "$1" >/dev/null; do sleep 0.05; done
  rm -f "$DIR/$1.host"
}
end_hosts() {
  local host
  for host in $(hosts_up); do end_host "$host"; done
}

# --- what is asked for -------------------------------------------------------------------------------------

need_root() {
  [ "$(id -u)" = 0 ] || fail "namespaces and Slurm's daemons need root: start it with sudo"
}
need_programs() {
  local program missing=()
  for program in "${PROGRAMS[@]}"; do command -v "$program" >/dev/null || missing+=("$program"); done
  ((${#missing[@]} == 0)) || fail "not installed: ${missing[*]}
  run deploy/setup.sh --cluster, or as root: apt-get install -y --no-install-recommends ${PACKAGES[*]}"
}
need_namespaces() {
  local reason
  # shellcheck disable=SC2016
  reason="$(unshare --net --uts --ipc --pid --mount --fork bash -c \
    'mount -t proc proc /proc && ip link add bridge type bridge' 2>&1)" || fail \
    "this machine lets root make no namespaces with a network bridge in them: ${reason//$'\n'/; }
  in a container, give it the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN; on a machine, load the kernel's
  modules bridge and veth (modprobe bridge veth)"
}
need_up() {
  holder head >/dev/null || fail "no cluster is up in $DIR: start one with
  $(short "$SCRIPT") --dir $DIR up"
}
nodes() { sed -nE 's/^NodeName=([^ ]+) .*/\1/p' "$DIR/slurm.conf"; }
# named_node NAME: fails if the cluster has none of that name.
named_node() {
  nodes | grep -qxF -- "$1" || fail_usage "this cluster has no node \"$1\", but $(nodes | paste -sd ' ')"
}

are_idle() { [ "$(on_head sinfo --noheader --format=%D --states=idle 2>/dev/null)" = "$1" ]; }

up() {
  local nodes="${1:-3}" node
  if [[ ! "$nodes" =~ ^[1-9][0-9]?$ ]] || ((nodes > MOST_NODES)); then
    fail_usage "up takes a number of nodes from 1 to $MOST_NODES, not \"$nodes\""
  fi
  need_root
  need_programs
  need_namespaces
  if [ -d "$DIR" ] && [ -n "$(hosts_up)" ]; then
    fail "a cluster is up in $DIR: end it with
  $(short "$SCRIPT") --dir $DIR down
  or give this one another folder with --dir"
  fi
  mkdir -p "$DIR"
  if [ -L "$DIR" ] || [ ! -O "$DIR" ]; then
    fail "$DIR is a link or belongs to another user, and root writes into it: name another folder with --dir"
  fi
  rm -rf "$DIR"/{state,spool.*,local,*.host,*.out,*.log,munge.*}
  mkdir -m 700 "$DIR/state" "$DIR/local"
  chmod 755 "$DIR" # munged refuses a folder that others may write
  (umask 077 && head -c 1024 /dev/urandom >"$DIR/munge.key")
  write_configuration "$nodes"
  start_head
  for ((node = 1; node <= nodes; node++)); do start_node "node$node"; done
  wait_until "$UP_SECONDS" "not all of $nodes nodes were idle after $UP_SECONDS s" are_idle "$nodes"
  on_head sinfo
}

status() {
  local name
  on_head sinfo --Node --long
  on_head squeue
  for name in $(nodes); do
    if ! holder "$name" >/dev/null; then
      echo "$name has crashed: boot $name starts it again"
    elif ! on_head ip link show "$name" | head -1 | grep -q '[<,]UP[,>]'; then
      echo "$name is cut off: join $name connects it again"
    fi
  done
}

crash() { # NODE
  holder "$1" >/dev/null || fail "$1 has crashed already"
  on_head ip link delete "$1" # first, so that nobody is told that its connections end
  end_host "$1"
}

boot() { # NODE
  if holder "$1" >/dev/null; then fail "$1 is up"; fi
  start_node "$1"
}

DIR=/tmp/tandem-cluster
if [ "${1:-}" = --dir ]; then
  [ -n "${2:-}" ] || fail_usage "--dir takes a folder"
  DIR="$2"
  shift 2
fi
[[ "$DIR" = /* ]] || DIR="$STARTED_IN/$DIR"
((${#DIR} <= 80)) || fail_usage "--dir: $DIR has ${#DIR} bytes, and paths of sockets in it need a folder of at most 80"
verb="${1:-}"
# What follows run and on is another command's.
case "$verb" in
  run | on) ;;
  *) usage_if_asked "$@" ;;
esac
(($# == 0)) || shift
case "$verb" in
  up)
    (($# <= 1)) || fail_usage "up takes the number of nodes, and nothing after it: ${*:2}"
    up "$@"
    ;;
  run)
    (($# > 0)) || fail_usage "run takes a command"
    need_root
    need_up
    on_head "$@"
    ;;
  on)
    (($# > 1)) || fail_usage "on takes a node and a command"
    need_root
    need_up
    named_node "$1"
    inside "$@"
    ;;
  status | down)
    (($# == 0)) || fail_usage "$verb takes nothing more: $*"
    need_root
    if [ "$verb" = status ]; then
      need_up
      status
    elif [ -d "$DIR" ]; then
      end_hosts
    fi
    ;;
  crash | boot | cut | join)
    (($# == 1)) || fail_usage "$verb takes one node, as node2"
    need_root
    need_up
    named_node "$1"
    case "$verb" in
      crash) crash "$1" ;;
      boot) boot "$1" ;;
      cut) on_head ip link set "$1" down ;;
      join) on_head ip link set "$1" up ;;
    esac
    ;;
  "") fail_usage "what to do: up, run, on, status, crash, boot, cut, join or down" ;;
  *) fail_usage "unknown argument $verb" ;;
esac
