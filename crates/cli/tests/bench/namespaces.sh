#!/bin/sh
# Loads a server from three network namespaces by SSH, and by one process: the same paced work.
#
#   unshare --net --mount --pid --fork --kill-child --mount-proc sh namespaces.sh MILLRACE FOLDER [BENCH FLAGS...]
#
# Writes FOLDER/three.json and FOLDER/one.json. All of it is in namespaces that end with this script.
set -eu
millrace=$1 folder=$2
shift 2
mount -t tmpfs none /run
mkdir -p /run/netns /run/sshd "$folder/home" "$folder/files"
ssh-keygen -q -t ed25519 -N '' -f "$folder/host" </dev/null
ssh-keygen -q -t ed25519 -N '' -f "$folder/key" </dev/null
cp "$folder/key.pub" "$folder/authorized"
cat > "$folder/sshd.conf" <<CONF
Port 2222
HostKey $folder/host
AuthorizedKeysFile $folder/authorized
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
SetEnv HOME=$folder/home
CONF
cat > "$folder/ssh.conf" <<CONF
IdentityFile $folder/key
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
CONF

ip link set lo up
ip link add bridge0 type bridge
ip addr add 10.9.8.1/24 dev bridge0
ip link set bridge0 up
from=
for number in 2 3 4; do
    ip netns add "g$number"
    ip link add "v$number" type veth peer name eth0 netns "g$number"
    ip link set "v$number" master bridge0 up
    ip -n "g$number" link set lo up
    ip -n "g$number" addr add "10.9.8.$number/24" dev eth0
    ip -n "g$number" link set eth0 up
    # Clocks that differ by two months and by a minute, where the kernel has namespaces for them.
    skew=
    case $number in
        3) skew='unshare --time --monotonic 5000000 --fork' ;;
        4) skew='unshare --time --monotonic -60 --fork' ;;
    esac
    # shellcheck disable=SC2086
    $skew true 2>/dev/null || skew=
    # shellcheck disable=SC2086
    ip netns exec "g$number" $skew /usr/sbin/sshd -D -f "$folder/sshd.conf" -E "$folder/sshd.log" &
    from="$from --from ssh://10.9.8.$number:2222"
done

"$millrace" serve "$folder/files" --ftp 10.9.8.1:2121 --http off --user me:pw --quiet --sandbox off \
    --ready-file "$folder/ready" >"$folder/serve.log" 2>&1 &
server=$!
tries=0
until [ -e "$folder/ready" ] && ip netns exec g2 sh -c "ssh -F $folder/ssh.conf -p 2222 10.9.8.4 true" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { cat "$folder/serve.log" "$folder/sshd.log" >&2; exit 1; }
    sleep 0.1
done

target=ftp://me:pw@10.9.8.1:2121/
# Exit status 3 says that a figure shows a limit other than the server's, as on a machine that is full.
measure() {
    status=0
    "$millrace" bench "$target" --allow 10.9.8.1 --server-pid "$server" "$@" || status=$?
    [ "$status" = 0 ] || [ "$status" = 3 ]
}
# shellcheck disable=SC2086
measure "$@" $from --ssh "ssh -F $folder/ssh.conf" --json "$folder/three.json"
measure "$@" --threads 1 --json "$folder/one.json"
