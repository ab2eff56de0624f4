# Boots systemd on a copy of this machine (machine.sh), to run one script of bash, whose exit code is the result.
#
#   sh boot.sh FOLDER      with FOLDER/script, which begins in FOLDER; its output goes to FOLDER/output
#
# This systemd begins none of the machine's services, and sees control groups of its own, and settings of the kernel that it cannot
# change.
set -eu
mount --make-rprivate /
mkdir /run/given
mount --bind "$1" /run/given
mount -t tmpfs tmpfs /tmp

group=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)/$(basename "$1")
mkdir "$group"
echo 0 > "$group/cgroup.procs"

rm -rf /etc/systemd/system/*.wants /usr/lib/systemd/system/*.wants
for target in sysinit basic network-online; do
    printf '[Unit]\nDefaultDependencies=no\n' > /etc/systemd/system/$target.target
done
# Images of containers have the first, by which no package starts a service; the second holds reinstallations back.
rm -f /usr/sbin/policy-rc.d /etc/apt/apt.conf.d/99as-it-is
# Nor is every manual page of the machine read for the sake of one package's.
rm -f /var/lib/man-db/auto-update
ln -s /dev/null /etc/systemd/system/systemd-journald-audit.socket
printf '[Journal]\nAudit=no\nReadKMsg=no\n' > /etc/systemd/journald.conf
cat > /etc/systemd/system/script.service <<END
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service
After=systemd-journald.service
SuccessAction=exit-force
FailureAction=exit-force

[Service]
Type=oneshot
WorkingDirectory=/run/given
Environment=HOME=/root DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
ExecStart=/bin/bash script
StandardOutput=file:/run/given/output
StandardError=inherit
END

exec unshare --cgroup --ipc --uts sh -c '
    umount -R /sys/fs/cgroup
    for folder in /proc/sys /sys; do
        mount --bind $folder $folder
        mount -o remount,bind,ro $folder
    done
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    container=other exec /lib/systemd/systemd --system --unit=script.service --show-status=no --log-target=null
'
