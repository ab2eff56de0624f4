# Runs a command on a copy of this machine: its programs, but folders, processes and a network that end with the command.
#
#   unshare --mount --pid --net --fork --kill-child --mount-proc sh machine.sh EMPTY-FOLDER COMMAND [ARGUMENT...]
set -eu
layers=$1
shift
mount -t tmpfs tmpfs "$layers"
for folder in etc home opt root srv usr var; do
    mkdir -p "$layers/$folder/upper" "$layers/$folder/work"
    mount -t overlay overlay "/$folder" \
        -o "lowerdir=/$folder,upperdir=$layers/$folder/upper,workdir=$layers/$folder/work"
done
# Without systemd's sockets, `service` uses the scripts of /etc/init.d.
mount -t tmpfs tmpfs /run
mkdir -m 1777 /run/lock
ip link set lo up
# What is installed stays as it is: no newer package can be fetched.
echo 'APT::Get::Upgrade "false";' >/etc/apt/apt.conf.d/99as-it-is
cd /root
exec "$@"
