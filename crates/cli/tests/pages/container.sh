# Runs the image in this folder as its configuration says, with two variables more, and uses it.
#
#   bash container.sh FOLDER
#
# The program under test is linked with this machine's libraries, so the image sees those. The packaged one is static.
set -eu
cd "$1"
mkdir image root
tar -xf millrace-*-image-*.tar -C image
layer() { python3 -c 'import json; print(json.load(open("image/manifest.json"))[0]["Layers"][0])'; }
tar -xpf "image/$(layer)" --same-owner -C root
config() {
    python3 -c '
import json, sys
config = json.load(open("image/" + json.load(open("image/manifest.json"))[0]["Config"]))["config"]
print(*eval(sys.argv[1]), sep="\n")' "$1"
}
for folder in /lib /lib64 /usr/lib /proc; do
    [ ! -e $folder ] || { mkdir -p "root$folder" && mount --rbind $folder "root$folder"; }
done
mapfile -t variables < <(config 'config["Env"]')
mapfile -t program < <(config 'config["Entrypoint"] + config["Cmd"]')
mapfile -t check < <(config 'config["Healthcheck"]["Test"][1:]')
user=$(config '[config["User"]]')
in_image() { env -i "${variables[@]}" "${more[@]}" "$(command -v chroot)" --userspec="$user" --groups= root "$@"; }
fails() { if "$@"; then exit 1; fi; }

more=()
fails in_image "${check[@]}"
mkfifo said
more=(MILLRACE_USER=alice:correct-horse MILLRACE_ANONYMOUS=off)
in_image "${program[@]}" > said 2>&1 &
while read -r line && echo "$line" && [[ $line != Ready* ]]; do :; done < <(tee log < said)
in_image "${check[@]}"
echo hello > hello
curl -sS -T hello ftp://alice:correct-horse@127.0.0.1:2121/
curl -sS http://alice:correct-horse@127.0.0.1:8080/hello
fails curl -sS ftp://127.0.0.1:2121/
stat -c '%n is of %u' root/srv/hello
kill -TERM "$(pgrep -x millrace | head -n 1)"
wait
fails in_image "${check[@]}"
